"""Progress on the screen: a bar in a terminal or a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any, Protocol

from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.tracking import RunInfo, Tracker

REDRAWN = 0.1
"""Seconds between two drawings of a notebook's bar at the least."""


def progress(label: str = "") -> Tracker:
    """How far the run is, its loss, its last score and its speed, on standard error or in the notebook."""
    return ProgressTracker(label)


class ProgressTracker:
    """Shows the rounds of this session; those before a resumed run are not told again."""

    name = "progress"

    def __init__(self, label: str) -> None:
        self._label = label
        self._display: Display | None = None

    def start(self, run: RunInfo) -> int:
        """Say what was decided for the user, and draw the bar."""
        from fedtempo.support.terminal import say  # it loads Rich, which training without a bar does not need

        for note in run.notes:
            say(note, error=not in_notebook())
        self._display = display(run.rounds, self._label)
        return run.done

    def round(self, report: RoundReport) -> None:
        """Move the bar."""
        if self._display is not None:
            self._display.show(report)

    def end(self, result: Result | None) -> None:
        """Leave the bar as it stands."""
        if self._display is not None:
            self._display.close()


class Display(Protocol):
    """One way to show progress."""

    def show(self, report: RoundReport) -> None:
        """Show a round."""
        ...

    def close(self) -> None:
        """Show no more."""
        ...


def display(total: int, label: str) -> Display:
    """What suits the place: a notebook's bar, a terminal's, or lines."""
    if in_notebook():
        return NotebookBar(total, label)
    return TerminalBar(total, label) if sys.stderr.isatty() else PlainLines(total, label)


def in_notebook() -> bool:
    """Whether this Python is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython.get_ipython(), "kernel") if ipython is not None else False


class RoundPace:
    """Rounds done and to do, how fast they go, and the last score."""

    def __init__(self, total: int, label: str) -> None:
        self.total, self.label = total, label
        self.done, self.score = 0, ""
        self._seen, self._began = 0, time.perf_counter()

    def after(self, report: RoundReport) -> str:
        """The numbers to show after a round."""
        self.done = report.round + 1
        self._seen += 1
        self.score = _score(report) or self.score
        return f"{_loss(report)} {self.score}".rstrip()

    @property
    def speed(self) -> float:
        """Rounds per second of this session."""
        return self._seen / max(time.perf_counter() - self._began, 1e-9)

    @property
    def left(self) -> float:
        """Seconds that the rest will take at this speed."""
        return (self.total - self.done) / self.speed


class PlainLines:
    """Plain lines: the first round, every evaluated one, the last."""

    def __init__(self, total: int, label: str) -> None:
        self._pace = RoundPace(total, label)

    def show(self, report: RoundReport) -> None:
        """Print a line where there is something to say."""
        from fedtempo.support.terminal import say

        pace, first = self._pace, self._pace.done == 0
        numbers = pace.after(report)
        if not first and pace.done != pace.total and report.scores is None:
            return
        if report.scores is None:
            numbers = _loss(report)
        prefix = f"{pace.label}: " if pace.label else ""
        speed = f"{pace.speed:.1f} rounds/s, {pace.left:.0f} s left"
        say(f"{prefix}round {pace.done}/{pace.total} {numbers}, {speed}", error=True)

    def close(self) -> None:
        """Nothing is open."""


class TerminalBar:
    """A bar that is redrawn in place."""

    def __init__(self, total: int, label: str) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        from fedtempo.support.terminal import Terminal

        self._pace = RoundPace(total, label)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[numbers]}", markup=False),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=Terminal(stderr=True))
        self._task = self._bar.add_task(label or "training", total=total, numbers="")
        self._bar.start()

    def show(self, report: RoundReport) -> None:
        """Move the bar."""
        numbers = self._pace.after(report)
        text = f"{numbers} {self._pace.speed:.1f} rounds/s"
        self._bar.update(self._task, completed=self._pace.done, numbers=text)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()


class NotebookBar:
    """A bar below the cell, of plain HTML: it needs no widgets, and stays in the saved notebook."""

    def __init__(self, total: int, label: str) -> None:
        self._pace = RoundPace(total, label)
        self._drawn = time.perf_counter()
        display = sys.modules["IPython"].display
        self._handle: Any = display.DisplayHandle()
        self._page = display.HTML
        self._handle.display(self._page(self._html("")))

    def show(self, report: RoundReport) -> None:
        """Draw the bar again, unless it has just been drawn."""
        numbers = self._pace.after(report)
        now = time.perf_counter()
        if now - self._drawn < REDRAWN and self._pace.done < self._pace.total:
            return
        self._drawn = now
        self._handle.update(
            self._page(self._html(f"{numbers} · {self._pace.speed:.1f} rounds/s · {self._pace.left:.0f} s left"))
        )

    def close(self) -> None:
        """The last drawing stays."""

    def _html(self, numbers: str) -> str:
        pace = self._pace
        bar = f'<progress value="{pace.done}" max="{pace.total}" aria-label="rounds"></progress>'
        return f"<div>{escape(pace.label)} {bar} {pace.done}/{pace.total} {escape(numbers)}</div>"


def _loss(report: RoundReport) -> str:
    return "loss withheld (private)" if report.private else f"loss {report.loss:.4f}"


def _score(report: RoundReport) -> str:
    if report.scores is None:
        return ""
    return f"{report.scores.metric} {report.scores.guiding.summary(report.scores.metric)['mean']:.3f}"
