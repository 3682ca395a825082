"""Runs of experiment files as they are: a study in which nothing is tuned."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedtempo.comparison.entrants import Entrant, slug
from fedtempo.config import ExperimentFile, parse, train_file
from fedtempo.errors import is_count, require
from fedtempo.study.driver import Observe, perform_all
from fedtempo.training.loop import drained
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.storage.database import DATABASE

Follow = Callable[[Generator[RoundReport, None, Result], int, str], Result]


@dataclass(frozen=True)
class PlainRun:
    """An experiment file with a seed, and the folder that keeps its run."""

    label: str
    file: ExperimentFile
    folder: Path
    follow: Follow | None = None
    """Shows the rounds of a run of this process; None where other processes train."""

    @property
    def name(self) -> str:
        """For people."""
        return f"seed {self.file.seed}, {self.label}"

    def done(self) -> bool:
        """No plan guards the folder: going on with what is there checks that it is this run."""
        return False

    def perform(self) -> None:
        """Train to the end, on from the last stored round if there is one."""
        file = self.file if self.follow is not None else parse({**self.file.model_dump(), "workers": 1})
        rounds = train_file(file, self.folder, (self.folder / DATABASE).exists())
        result = drained(rounds) if self.follow is None else self.follow(rounds, file.rounds, self.name)
        result.export(self.folder)


def run_plainly(
    entrants: Sequence[Entrant],
    seeds: int,
    folder: Path,
    follow: Follow,
    workers: int = 1,
    observe: Observe = lambda done, total, name: None,
) -> list[PlainRun]:
    """Train everybody with seeds s, s + 1, ... of the file; runs found in the folder are resumed.

    Several workers train whole runs side by side, one thread each. The first failure is raised when all have ended.
    """
    require(is_count(seeds), "seeds", "an int >= 1", seeds)
    require(is_count(workers), "workers", "an int >= 1", workers)
    runs = [
        PlainRun(
            entrant.label,
            entrant.file.model_copy(update={"seed": (seed := entrant.file.seed + offset)}),
            folder / slug(entrant.label) / f"seed-{seed}",
            follow if workers == 1 else None,
        )
        for offset in range(seeds)
        for entrant in entrants
    ]
    failed = perform_all(runs, workers, can_be_sent=True, observe=observe)
    if failed:
        raise failed[0]
    return runs
