"""Experiment files: TOML in, checked by pydantic, with one-line errors that name field, rule and value."""

from fedtempo.config.construct import make_algorithm
from fedtempo.config.construct_data import make_data
from fedtempo.config.experiment_file import (
    dump,
    fingerprint,
    overrides_of,
    parse,
    read,
    read_values,
    settings_of,
    trackers_of,
    with_values,
)
from fedtempo.config.places import places_outside, read_stored, stored_file, without_places
from fedtempo.config.schema import ExperimentFile
from fedtempo.config.training import train_file, write_experiment
from fedtempo.training.storage.folders import EXPERIMENT

__all__ = [
    "EXPERIMENT",
    "ExperimentFile",
    "dump",
    "fingerprint",
    "make_algorithm",
    "make_data",
    "overrides_of",
    "parse",
    "places_outside",
    "read",
    "read_stored",
    "read_values",
    "settings_of",
    "stored_file",
    "train_file",
    "trackers_of",
    "with_values",
    "without_places",
    "write_experiment",
]
