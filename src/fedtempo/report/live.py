"""Progress of a running training generator."""

from __future__ import annotations

from collections.abc import Generator

from fedtempo.training.loop import drained
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.trackers.progress import display


def follow(
    rounds: Generator[RoundReport, None, Result],
    total: int,
    *,
    label: str = "",
    quiet: bool = False,
) -> Result:
    """Run a training generator to its end, show its progress, and return its result."""
    if quiet:
        return drained(rounds)
    shown = display(total, label)
    try:
        return drained(rounds, shown.show)
    finally:
        shown.close()
