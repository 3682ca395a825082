"""Experiment files: TOML in, checked by pydantic, with one-line errors that name field, rule and value."""

from fedtempo.config.construct import make_algorithm, make_data
from fedtempo.config.files import dump, fingerprint, overrides_of, parse, read, settings_of, trackers_of
from fedtempo.config.schema import ExperimentFile

__all__ = [
    "ExperimentFile",
    "dump",
    "fingerprint",
    "make_algorithm",
    "make_data",
    "overrides_of",
    "parse",
    "read",
    "settings_of",
    "trackers_of",
]
