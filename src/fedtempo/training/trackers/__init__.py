"""Trackers: where a run's numbers go while it trains. `training/tracking.py` tells them.

Each is a small file; those of other projects need an extra.
"""

from collections.abc import Callable, Iterable

from fedtempo.errors import require, unknown
from fedtempo.training.trackers.csv import csv
from fedtempo.training.trackers.jsonl import jsonl
from fedtempo.training.trackers.mlflow import mlflow
from fedtempo.training.trackers.numbers import numbers
from fedtempo.training.trackers.progress import progress
from fedtempo.training.trackers.tensorboard import tensorboard
from fedtempo.training.trackers.wandb import wandb
from fedtempo.training.tracking import RunInfo, Tracker

TRACKERS: dict[str, Callable[..., Tracker]] = {
    "csv": csv,
    "jsonl": jsonl,
    "mlflow": mlflow,
    "progress": progress,
    "tensorboard": tensorboard,
    "wandb": wandb,
}


def as_trackers(given: Iterable[str | Tracker]) -> list[Tracker]:
    """Trackers from trackers and their names; one whose library is missing is an error now, not after the run."""
    rule = "a list of trackers or of their names"
    require(isinstance(given, Iterable) and not isinstance(given, str), "trackers", rule, given)
    trackers = []
    for each in given:
        if isinstance(each, str) and each not in TRACKERS:
            raise unknown("tracker", each, TRACKERS)
        tracker = TRACKERS[each]() if isinstance(each, str) else each
        methods = all(callable(getattr(tracker, name, None)) for name in ("start", "round", "end"))
        require(methods and isinstance(getattr(tracker, "name", None), str), "trackers", rule, each)
        trackers.append(tracker)
    return trackers


__all__ = [
    "TRACKERS",
    "RunInfo",
    "Tracker",
    "as_trackers",
    "csv",
    "jsonl",
    "mlflow",
    "numbers",
    "progress",
    "tensorboard",
    "wandb",
]
