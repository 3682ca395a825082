"""What a tracker is, and what it is told: the settings, every round, the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

from fedtempo.errors import ConfigError, OutputError
from fedtempo.evaluation import Scores
from fedtempo.reports import RoundReport
from fedtempo.result import Result


@dataclass(frozen=True)
class Begun:
    """A run that is about to train: what it is, where it is kept, and whether it goes on from earlier."""

    settings: Mapping[str, str]
    rounds: int
    folder: Path | None = None
    """The run folder, if the run has one."""
    resumed: bool = False
    done: int = 0
    """Rounds that were over before."""

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
    """Told about a run as it goes on. Write your own with these three methods and a name."""

    name: str

    def start(self, run: Begun) -> int:
        """Begin, and say how many rounds of this run are held already: those are not told again."""
        ...

    def round(self, report: RoundReport) -> None:
        """One round is over and committed."""
        ...

    def end(self, result: Result | None) -> None:
        """The run is over, or was stopped (None)."""
        ...


def numbers(report: RoundReport) -> dict[str, float]:
    """All numbers of a round by name, such as `costs/steps` and `test/new_tuned/accuracy/mean`."""
    values = {
        "loss": report.loss,
        "seconds": report.seconds,
        "clients": len(report.clients),
        "failures": len(report.failures),
        "abandoned": int(report.abandoned),
    }
    for kind, costs in (("costs", report.costs), ("total_costs", report.total_costs)):
        values.update({f"{kind}/{name}": value for name, value in asdict(costs).items()})
    values.update({f"measurements/{name}": value for name, value in report.measurements.items()})
    for part in (report.validation, report.test):
        values.update(score_numbers(part) if part is not None else {})
    return {name: float(value) for name, value in values.items()}


def score_numbers(scores: Scores) -> dict[str, float]:
    """The statistics of one evaluation by name."""
    return {
        f"{scores.part}/{group}/{metric}/{statistic}": value
        for group, metrics in scores.summary().items()
        for metric, statistics in metrics.items()
        for statistic, value in statistics.items()
    }


def library(name: str, extra: str) -> ModuleType:
    """Another project's library; where it is not installed, the error says how to install it."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"tracker {extra!r} must have its library installed: pip install 'fedtempo[{extra}]'. Got {error}."
        ) from None


def unwritable(tracker: str, place: Path, error: OSError) -> OutputError:
    """The error for a place that cannot be written."""
    return OutputError(f"tracker {tracker!r} must be given a path that can be written. Got {place}: {error.strerror}.")
