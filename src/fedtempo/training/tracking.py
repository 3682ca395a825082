"""Trackers of a run: they receive the settings, every round's report and the result. They change no number."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from fedtempo.errors import ConfigError, FedTempoError, OutputError, first_line, is_count, shown
from fedtempo.support.extras import library
from fedtempo.training.experiment import Experiment
from fedtempo.training.private_runs import WITHHELD
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport


@dataclass(frozen=True)
class RunInfo:
    """A run that is about to train: its settings, its folder, and whether it is resumed."""

    settings: Mapping[str, str]
    rounds: int
    folder: Path | None = None
    """The run folder, if the run has one."""
    resumed: bool = False
    done: int = 0
    """Rounds that a resumed run has committed already."""
    notes: tuple[str, ...] = ()
    """What was decided for the user, a line each."""

    def place(self, given: Path | None, name: str, tracker: str) -> Path:
        """Where a tracker writes: the path it was given, or `name` in the run folder. A new run finds nothing there."""
        if given is None and self.folder is None:
            raise ConfigError(f"tracker {tracker!r} must be given a path where the run has no out folder. Got none.")
        place = given if given is not None else (self.folder or Path()) / name
        try:
            taken = place.exists() and (place.is_file() or any(place.iterdir()))
            if taken and not self.resumed:
                raise OutputError(f"tracker {tracker!r} must be given a path that is new or empty. Got {place}.")
            place.parent.mkdir(parents=True, exist_ok=True)
        except OutputError:
            raise
        except OSError as error:
            raise unwritable(tracker, place, error) from None
        return place


class Tracker(Protocol):
    """Receives the reports of a run. Write your own with a name and these three methods."""

    name: str

    def start(self, run: RunInfo) -> int | None:
        """Begin; returns how many rounds of this run are logged already (None: none), which are not repeated."""
        ...

    def round(self, report: RoundReport) -> None:
        """Log one round, which is committed."""
        ...

    def end(self, result: Result | None) -> None:
        """Log the result of a finished run; None if the run was stopped."""
        ...


class Tracking:
    """The trackers of a run, each with the number of rounds it holds."""

    def __init__(self) -> None:
        self._held: list[tuple[Tracker, int]] = []

    def start(self, tracker: Tracker, run: RunInfo, history: Sequence[RoundReport]) -> None:
        """Start a tracker and tell it the rounds of a resumed run that it missed.

        A `FedTempoError` is about a setting, such as a file that exists already, and is raised: nothing is trained yet.
        After any other error the tracker is dropped with a warning.
        """
        try:
            held = _held(tracker.start(run))
        except FedTempoError:
            raise
        except Exception as error:
            _warn(tracker, error)
            return
        self._held.append((tracker, held))
        for report in history[held:]:
            if any(tracker is other for other, _ in self._held):
                self._tell(tracker, partial(tracker.round, report))

    def round(self, report: RoundReport) -> None:
        """Report a round to every tracker that has not logged it already. A resumed run may repeat a logged round."""
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
        """Tell one tracker. If it fails it is dropped with a warning: a full disk for logs must not stop the run."""
        try:
            word()
        except Exception as error:
            self._forget(tracker)
            _warn(tracker, error)

    def _forget(self, tracker: Tracker) -> None:
        self._held = [(other, held) for other, held in self._held if other is not tracker]


def _held(said: Any) -> int:
    """How many rounds a tracker says it holds."""
    if said is None:
        return 0
    if not is_count(said, 0):
        raise TypeError(f"start must return an int >= 0 or None. Got {shown(said)}.")
    return int(said)


def _warn(tracker: Tracker, error: Exception) -> None:
    message = f"tracker {tracker.name!r} failed and is left out from now on: {first_line(error)}"
    warnings.warn(message, RuntimeWarning, stacklevel=3)


@contextmanager
def tracking(
    trackers: Sequence[Tracker],
    experiment: Experiment,
    folder: Path | None,
    resumed: bool,
    history: Sequence[RoundReport],
) -> Iterator[Tracking]:
    """Start trackers, and end them however the run ends."""
    tracked = Tracking()
    try:
        if trackers:
            settings = tracked_settings(experiment)
            run = RunInfo(settings, experiment.rounds, folder, resumed, len(history), experiment.notes)
            for tracker in trackers:
                tracked.start(tracker, run, history)
        yield tracked
    finally:
        tracked.end(None)


def tracked_settings(experiment: Experiment) -> dict[str, str]:
    """What a run is: everything that decides its numbers, and the algorithm's settings one by one."""
    algorithm, promised = experiment.federation.algorithm, experiment.guarantee()
    settings = {**experiment.describe(), **{f"algorithm.{name}": repr(v) for name, v in algorithm.settings.items()}}
    if promised is None:
        return settings
    # With the hash of the data, somebody could check a guess at a private run's data. So it is not published.
    return {**settings, "data": WITHHELD, "privacy": str(promised)}


def unwritable(tracker: str, place: Path, error: OSError) -> OutputError:
    """The error for a place that cannot be written."""
    return OutputError(f"tracker {tracker!r} must be given a path that can be written. Got {place}: {error.strerror}.")


def tracker_library(module: str, name: str) -> ModuleType:
    """The library that a tracker writes with; where it is absent, the error says how to install it."""
    return library(module, name, f"tracker {name!r}")
