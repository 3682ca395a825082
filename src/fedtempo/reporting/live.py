"""Progress while a run goes on: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedtempo.reports import RoundReport
from fedtempo.result import Result

Observer = Callable[[RoundReport], None]


def follow(
    rounds: Generator[RoundReport, None, Result],
    total: int,
    *,
    label: str = "",
    quiet: bool = False,
    observe: Observer | None = None,
) -> Result:
    """Drain a training generator, show how it goes on standard error, and return its result."""
    if quiet:
        return _drain(rounds, [observe] if observe else [])
    if sys.stderr.isatty():
        return _with_bar(rounds, total, label, observe)
    lines = _Lines(total, label)
    return _drain(rounds, [lines.show, *([observe] if observe else [])])


def _drain(rounds: Generator[RoundReport, None, Result], observers: list[Observer]) -> Result:
    while True:
        try:
            report = next(rounds)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        for observer in observers:
            observer(report)


def _with_bar(rounds: Generator[RoundReport, None, Result], total: int, label: str, observe: Observer | None) -> Result:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label or "training", total=total, numbers="")
        began, best = time.perf_counter(), ""

        def show(report: RoundReport) -> None:
            nonlocal best
            best = _score(report) or best
            speed = (report.round + 1) / (time.perf_counter() - began)
            bar.update(task, completed=report.round + 1, numbers=f"loss {report.loss:.4f} {best} {speed:.1f} rounds/s")

        return _drain(rounds, [show, *([observe] if observe else [])])


class _Lines:
    """Plain lines: the first round, every evaluated one, the last."""

    def __init__(self, total: int, label: str) -> None:
        self._total, self._label, self._began = total, label, time.perf_counter()

    def show(self, report: RoundReport) -> None:
        done = report.round + 1
        if done not in (1, self._total) and report.scores is None:
            return
        spent = time.perf_counter() - self._began
        left = spent / done * (self._total - done)
        prefix = f"{self._label}: " if self._label else ""
        numbers = f"loss {report.loss:.4f} {_score(report)}".rstrip()
        line = f"{prefix}round {done}/{self._total} {numbers}, {done / spent:.1f} rounds/s, {left:.0f} s left"
        print(line, file=sys.stderr, flush=True)


def _score(report: RoundReport) -> str:
    if report.scores is None:
        return ""
    return f"{report.scores.metric} {report.scores.existing_tuned.summary(report.scores.metric)['mean']:.3f}"
