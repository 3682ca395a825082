"""Runs as a comparison sees them: what decided their numbers, and what every round reported."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fedtempo.costs import Costs
from fedtempo.errors import ConfigError, OutputError, StoreError
from fedtempo.evaluation.protocol import Scores
from fedtempo.training.database import DATABASE, seal_of
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport


@dataclass(frozen=True)
class Run:
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
            raise ConfigError(
                f"evaluation must be on in a run that is compared. Got {self.place}, which has no scores."
            )
        return scored[-1]

    @property
    def costs(self) -> Costs:
        """What the whole run cost."""
        return self.history[-1].total_costs if self.history else Costs()

    @property
    def seconds(self) -> float:
        """What all rounds took."""
        return sum(report.seconds for report in self.history)


def run_of(result: Result, label: str | None = None) -> Run:
    """A result in memory, as a run to compare."""
    return Run(label or "a result", result.experiment.identity(strict=False), result.history, label)


def read_run(folder: Path, label: str | None = None) -> Run:
    """A run folder, as a run to compare. Nothing is written, no data are loaded; damage is an error."""
    identity, history = read_rounds(folder)
    wanted = int(identity["rounds"])
    if len(history) != wanted:
        raise ConfigError(
            f"a run to compare must be finished. Got {folder}, which has {len(history)} of {wanted} rounds: "
            f"go on with `fedtempo resume {folder}`."
        )
    return Run(str(folder), identity, history, label)


def read_rounds(folder: Path) -> tuple[dict[str, str], list[RoundReport]]:
    """The identity of a stored run and the rounds that it has so far."""
    path = folder / DATABASE
    if not path.is_file():
        raise OutputError(f"a run to compare must be a folder that holds one. Got {folder}, which does not.")
    unchanging = "" if os.access(folder, os.W_OK) else "&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{unchanging}", uri=True)) as connection:
            seal = seal_of(connection, path)
            history, _ = seal.history(connection.execute("SELECT round, report, sha256 FROM reports ORDER BY round"))
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} cannot be read: {error}.") from None
    except StoreError as error:
        raise StoreError(f"{folder}: {error}") from None
    return seal.identity, history
