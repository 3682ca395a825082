"""What a run says, on the logger `fedtempo`: what was decided for the user, every round, and how it ended.

Rounds that were evaluated are told at INFO, the others at DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fedtempo.training.experiment import Experiment
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport

LOGGER = logging.getLogger("fedtempo")


def log_start(experiment: Experiment, history: Sequence[RoundReport]) -> None:
    """The run and the notes of its beginning."""
    done = f", {len(history)} of them done" if history else ""
    LOGGER.info("%r, %d rounds%s", experiment.federation.algorithm, experiment.rounds, done)
    for note in experiment.notes:
        LOGGER.info("%s", note)


def log_round(report: RoundReport, rounds: int) -> None:
    """A round: its loss and, where it was evaluated, its score."""
    level = logging.DEBUG if report.scores is None else logging.INFO
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, "round %d/%d: %s", report.round + 1, rounds, _numbers(report))


def log_end(result: Result) -> None:
    """How the run ended, and what is to be known about it."""
    for note in result.notes[len(result.experiment.notes) :]:
        LOGGER.info("%s", note)


def _numbers(report: RoundReport) -> str:
    loss = "loss withheld (private)" if report.private else f"loss {report.loss:.4f}"
    if report.scores is None:
        return loss
    metric = report.scores.metric
    return f"{loss}, {report.scores.part} {metric} {report.scores.guiding.summary(metric)['mean']:.4f}"
