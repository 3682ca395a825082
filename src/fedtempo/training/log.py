"""What a run says, on the logger `fedtempo`: what was decided for the user, every round, and how it ended.

Rounds that were evaluated are told at INFO, the others at DEBUG. What was decided for the user is told at WARNING, if
nothing else shows it: that is the lowest level that Python prints where a script has not configured logging.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fedtempo.support.printable import printable
from fedtempo.training.experiment import Experiment
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport

LOGGER = logging.getLogger("fedtempo")


def _made_printable(record: logging.LogRecord) -> bool:
    """Names in a line are other people's text: what a terminal would obey is written out, and a line stays one."""
    record.msg, record.args = printable(record.getMessage()).replace("\n", "\\n"), ()
    return True


LOGGER.addFilter(_made_printable)


def log_start(experiment: Experiment, history: Sequence[RoundReport], notes_as_warnings: bool = False) -> None:
    """The run and the notes of its beginning: one line for its task and its first weights, one for each other note.

    `notes_as_warnings` is for runs whose notes nobody else shows: a plain script prints warnings.
    """
    done = f", {len(history)} of them done" if history else ""
    LOGGER.info("%r, %d rounds%s", experiment.federation.algorithm, experiment.rounds, done)
    weights, task, *others = experiment.notes
    for note in (f"{task}; {weights}", *others):
        LOGGER.log(logging.WARNING if notes_as_warnings else logging.INFO, "%s", note)


def log_round(report: RoundReport, rounds: int) -> None:
    """A round: its clients, its loss, its score where it was evaluated, and the clients that did not answer."""
    level = logging.DEBUG if report.scores is None else logging.INFO
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, "round %d/%d: %s", report.round + 1, rounds, _numbers(report))


def log_end(result: Result, notes_as_warnings: bool = False) -> None:
    """The notes that the result adds. Those that begin with `warning:` are warnings if nothing else shows them."""
    for note in result.notes[len(result.experiment.notes) :]:
        loud = notes_as_warnings and note.startswith("warning: ")
        LOGGER.log(logging.WARNING if loud else logging.INFO, "%s", note)


@contextmanager
def lines_to(tell: Callable[[str], None] | None) -> Iterator[None]:
    """All that is logged, as lines, for a server or a node of a deployment; with None warnings only, on stderr."""
    handler, level = _Lines(tell), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.WARNING if tell is None else logging.DEBUG)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)


class _Lines(logging.Handler):
    def __init__(self, tell: Callable[[str], None] | None) -> None:
        super().__init__()
        self._tell = tell or _warn

    def emit(self, record: logging.LogRecord) -> None:
        """Hand one line over."""
        self._tell(record.getMessage())


def _warn(line: str) -> None:
    from fedtempo.support.terminal import say  # loads what draws on a terminal, which a library does without

    say(f"fedtempo: {line}", error=True)


def _numbers(report: RoundReport) -> str:
    if report.private:
        words = "loss withheld (private)"
    else:
        words = f"{len(report.clients)} clients, " + ("abandoned" if report.abandoned else f"loss {report.loss:.4f}")
    if report.scores is not None:
        metric = report.scores.metric
        words += f", {report.scores.part} {metric} {report.scores.guiding.summary(metric)['mean']:.4f}"
    lost = () if report.private else report.failures
    absent = report.measurements.get("absent_not_finite", 0.0)
    words += f"; absent clients that are not finite and keep what they had: {absent:.0f}" if absent else ""
    return words + "".join(f"; client {failure.client}: {failure.reason}" for failure in lost)
