"""TensorBoard: scalars by round. It needs the extra `tensorboard`; then `tensorboard --logdir DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.trackers.numbers import numbers
from fedtempo.training.tracking import RunInfo, Tracker, tracker_library, unwritable

ALWAYS = "seconds"
"""A number that every round has: by it we know which rounds a folder holds."""


def tensorboard(path: str | Path | None = None) -> Tracker:
    """Event files in the folder `path`, by default `tensorboard` in the run folder."""
    tracker_library("tensorboard", "tensorboard")
    return TensorBoard(None if path is None else Path(path))


class TensorBoard:
    """Every number of a round as a scalar, the settings and the digest as text."""

    name = "tensorboard"

    def __init__(self, path: Path | None) -> None:
        self._given = path
        self._writer: Any = None

    def start(self, run: RunInfo) -> int:
        """Read which rounds the folder holds, then write a new event file beside those that are there."""
        folder = run.place(self._given, "tensorboard", self.name)
        held = _held(folder) if run.resumed and folder.exists() else 0
        try:
            self._writer = tracker_library("torch.utils.tensorboard", self.name).SummaryWriter(str(folder))
        except OSError as error:
            raise unwritable(self.name, folder, error) from None
        if not held:
            self._writer.add_text("settings", "\n".join(f"    {name}: {v}" for name, v in run.settings.items()))
        return held

    def round(self, report: RoundReport) -> None:
        """Write the round's scalars to disk."""
        for name, value in numbers(report).items():
            self._writer.add_scalar(name, value, report.number)
        self._writer.flush()

    def end(self, result: Result | None) -> None:
        """Write the digest of a finished run and close the file."""
        if result is not None:
            self._writer.add_text("digest", result.digest(), len(result.history))
        self._writer.close()


def _held(folder: Path) -> int:
    """How many rounds the event files of a folder hold."""
    events = tracker_library("tensorboard.backend.event_processing.event_accumulator", "tensorboard")
    # Of every scalar one event is kept, which is always the last one, and only its step is needed.
    found = events.EventAccumulator(str(folder), size_guidance={events.SCALARS: 1})
    found.Reload()
    if ALWAYS not in found.Tags()[events.SCALARS]:
        return 0
    return int(max(event.step for event in found.Scalars(ALWAYS)))
