"""Training an experiment file. Its run folder keeps the resolved file, by which the run is resumed and repeated."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path

from fedtempo.config.experiment_file import dump, fingerprint, settings_of
from fedtempo.config.schema import ExperimentFile
from fedtempo.support.files import write_atomically
from fedtempo.training.loop import train_experiment
from fedtempo.training.prepare import prepare
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.storage.folders import EXPERIMENT
from fedtempo.training.tracking import Tracker


def train_file(
    file: ExperimentFile,
    out: Path | None,
    resume: bool = False,
    trackers: Sequence[Tracker] = (),
    as_planned: bool = False,
    same_kind: bool = False,
) -> Generator[RoundReport, None, Result]:
    """Train an experiment file as `train` does. A new folder gets the resolved file once it belongs to this run.

    Settings are checked now, the folder is claimed with the first round: a run that cannot start leaves none behind.
    """
    keep = partial(write_experiment, experiment=file)
    return train_experiment(
        prepare(**settings_of(file)),
        out,
        resume,
        trackers=trackers,
        claimed=keep,
        as_planned=as_planned,
        same_kind=same_kind,
    )


def write_experiment(folder: Path, experiment: ExperimentFile) -> None:
    """The resolved experiment, with its hash, at the head of a new run folder."""
    text = f"# sha256 {fingerprint(experiment)}\n{dump(experiment)}"
    write_atomically(folder / EXPERIMENT, text, "out")
