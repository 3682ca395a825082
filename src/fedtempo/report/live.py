"""Progress of a running training generator."""

from __future__ import annotations

from collections.abc import Callable, Generator

from fedtempo.training.loop import drained
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.trackers.progress import look

Observer = Callable[[RoundReport], None]


def follow(
    rounds: Generator[RoundReport, None, Result],
    total: int,
    *,
    label: str = "",
    quiet: bool = False,
    observe: Observer | None = None,
) -> Result:
    """Run a training generator to its end, show its progress, and return its result."""
    shown = None if quiet else look(total, label)
    observers = [*([shown.show] if shown else []), *([observe] if observe else [])]
    try:
        return drained(rounds, *observers)
    finally:
        if shown is not None:
            shown.close()
