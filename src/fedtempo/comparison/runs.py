"""Runs as a comparison sees them: what decided their numbers, and what every round reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedtempo.errors import ConfigError
from fedtempo.evaluation.protocol import Scores
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport, RunHistory
from fedtempo.training.storage.reader import RunReader


@dataclass(frozen=True)
class Run(RunHistory):
    """A finished run. Runs with the same label are seeds of one contestant; without one, its settings are its label."""

    place: str
    identity: Mapping[str, str]
    history: Sequence[RoundReport]
    label: str | None = None

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.identity["seed"])

    @property
    def scores(self) -> Scores:
        """The scores of the last round that validation selected."""
        scored = [report.test for report in self.history if report.test is not None]
        if not scored:
            rule = "evaluation must be on, and select a round by a finite validation score, in a run that is compared"
            raise ConfigError(f"{rule}. Got {self.place}, which has no scores.")
        return scored[-1]


def run_of(result: Result, label: str | None = None) -> Run:
    """A result in memory, as a run to compare."""
    return Run(label or "a result", result.experiment.identity(strict=False), result.history, label)


def finished_run(folder: Path, label: str | None = None) -> Run:
    """A run folder, as a run to compare. Nothing is written, no data are loaded; damage is an error."""
    reader = RunReader(folder)
    history, wanted = reader.refresh(), int(reader.identity["rounds"])
    if len(history) != wanted and not (history and history[-1].stops):
        raise ConfigError(
            f"a run to compare must be finished. Got {folder}, which has {len(history)} of {wanted} rounds: "
            f"go on with `fedtempo resume {folder}`."
        )
    return Run(str(folder), reader.identity, history, label)
