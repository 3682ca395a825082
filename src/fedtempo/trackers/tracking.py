"""Telling trackers about a run. They look on: nothing they do changes a number of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fedtempo.errors import first_line
from fedtempo.experiment import Experiment
from fedtempo.reports import RoundReport
from fedtempo.result import Result
from fedtempo.trackers.tracker import Begun, Tracker


class Tracking:
    """The trackers of a run, each with the number of rounds it holds."""

    def __init__(self) -> None:
        self._held: list[tuple[Tracker, int]] = []

    def start(self, tracker: Tracker, run: Begun, history: Sequence[RoundReport]) -> None:
        """Start a tracker and tell it the rounds of a resumed run that it missed."""
        held = tracker.start(run)
        self._held.append((tracker, held))
        for report in history[held:]:
            tracker.round(report)

    def round(self, report: RoundReport) -> None:
        """Tell everybody but those who hold this round already: a resumed run repeats it to the bit."""
        for tracker, held in list(self._held):
            if report.round >= held:
                self._tell(tracker, partial(tracker.round, report))

    def end(self, result: Result | None) -> None:
        """Tell everybody that the run is over, once."""
        while self._held:
            tracker, _ = self._held[0]
            self._tell(tracker, partial(tracker.end, result))
            self._forget(tracker)

    def _tell(self, tracker: Tracker, word: Callable[[], None]) -> None:
        """A tracker that fails is left out from then on; the run is worth more than its log."""
        try:
            word()
        except Exception as error:
            self._forget(tracker)
            message = f"tracker {tracker.name!r} failed and is left out from now on: {first_line(error)}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _forget(self, tracker: Tracker) -> None:
        self._held = [(other, held) for other, held in self._held if other is not tracker]


@contextmanager
def tracking(
    trackers: Sequence[Tracker],
    experiment: Experiment,
    folder: Path | None,
    resumed: bool,
    history: Sequence[RoundReport],
) -> Iterator[Tracking]:
    """Start trackers, and end them however the run ends."""
    told = Tracking()
    try:
        if trackers:
            run = Begun(settings_of(experiment), experiment.rounds, folder, resumed, len(history))
            for tracker in trackers:
                told.start(tracker, run, history)
        yield told
    finally:
        told.end(None)


def settings_of(experiment: Experiment) -> dict[str, str]:
    """What a run is: everything that decides its numbers, and the algorithm's settings one by one."""
    algorithm = experiment.federation.algorithm
    return {**experiment.identity(), **{f"algorithm.{name}": repr(v) for name, v in algorithm.settings.items()}}
