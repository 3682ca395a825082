"""Progress while a run goes on, for whoever owns the loop."""

from __future__ import annotations

from collections.abc import Callable, Generator

from fedtempo.reports import RoundReport
from fedtempo.result import Result
from fedtempo.trackers.progress import look

Observer = Callable[[RoundReport], None]


def follow(
    rounds: Generator[RoundReport, None, Result],
    total: int,
    *,
    label: str = "",
    quiet: bool = False,
    observe: Observer | None = None,
) -> Result:
    """Drain a training generator, show how it goes on standard error or in the notebook, and return its result."""
    shown = None if quiet else look(total, label)
    observers = [*([shown.show] if shown else []), *([observe] if observe else [])]
    try:
        return _drain(rounds, observers)
    finally:
        if shown is not None:
            shown.close()


def _drain(rounds: Generator[RoundReport, None, Result], observers: list[Observer]) -> Result:
    while True:
        try:
            report = next(rounds)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        for observer in observers:
            observer(report)
