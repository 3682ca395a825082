"""Where the time of a round goes: data, forward and backward, update, aggregation, store, evaluation.

A timer interrupts the program a thousand times a second and looks at what it is doing, so that nothing has to be
measured inside the code and the program runs at its usual speed. Workers cannot be watched: profile with `workers=1`,
as `fedtempo run --profile` does.

>>> with Profile() as profile:
...     total = sum(range(1000))
>>> set(profile.seconds) <= set(ACTIVITIES)
True
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from fedtempo.errors import ConfigError

INTERVAL_SECONDS = 0.001
SOURCE = str(Path(__file__).parent)
REST = "the rest"
WHOLE = {"evaluation.py": "evaluation"}
"""Files that claim everything done on their behalf."""
PARTS = {
    "durable.py": "store",
    "store.py": "store",
    "state.py": "store",
    "network.py": "forward and backward",
    "objectives.py": "forward and backward",
    "tasks.py": "forward and backward",
    "gradients.py": "forward and backward",
    "recording.py": "forward and backward",
    "local.py:loss": "forward and backward",
    "local.py:<lambda>": "forward and backward",
    "backends/serial.py:gradient": "forward and backward",
    "data/": "data",
    "federation.py:rows": "data",
    "federation.py:client_rows": "data",
    "randomness.py": "data",
    "backends/serial.py:_batch": "data",
    "backends/vectorised.py:_batch": "data",
    "aggregation.py": "aggregation",
    "exact.py": "aggregation",
    "admission.py": "aggregation",
    "robust.py": "aggregation",
    "round.py": "aggregation",
    "federation.py:_upload": "aggregation",
    "backends/each.py": "aggregation",
    "backends/block.py:_collect": "aggregation",
    "backends/block.py:_collect_one": "aggregation",
    "backends/block.py:_collect_lanes": "aggregation",
    "local.py": "update",
    "transforms.py": "update",
    "backends/processes.py": "waiting for workers",
    "backends/ray_actors.py": "waiting for workers",
}
"""Which activity a line of the library belongs to, by file or by function; the innermost match counts."""
ACTIVITIES = tuple(dict.fromkeys([*PARTS.values(), *WHOLE.values(), REST]))


class Profile:
    """Seconds by activity while the `with` block runs. Only the main thread of a program can be watched."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = 0.0
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
            raise ConfigError("profile must be asked for in the main thread of a system with interval timers.")
        self._last = time.perf_counter()
        self._before = signal.signal(signal.SIGALRM, self._look)
        signal.siginterrupt(signal.SIGALRM, False)
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_SECONDS, INTERVAL_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self._before)

    def _look(self, number: int, frame: FrameType | None) -> None:
        # A long operation delays the signal: it is charged with all the time since the last one.
        now = time.perf_counter()
        activity = activity_of(frame)
        self.seconds[activity] = self.seconds.get(activity, 0.0) + now - self._last
        self._last = now

    def shares(self) -> dict[str, float]:
        """The part of the time that each activity took, largest first."""
        total = sum(self.seconds.values()) or 1.0
        return {a: s / total for a, s in sorted(self.seconds.items(), key=lambda entry: -entry[1])}

    def per_round(self, rounds: int) -> str:
        """A line per activity: milliseconds of a round, and their share."""
        lines = [
            f"{activity:<22}{1000 * self.seconds[activity] / rounds:>9.1f} ms a round{share:>8.1%}"
            for activity, share in self.shares().items()
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = [
            f"{activity:<22}{self.seconds[activity]:>9.3f} s{share:>8.1%}" for activity, share in self.shares().items()
        ]
        return "\n".join(lines)


def activity_of(frame: FrameType | None) -> str:
    """What the program is doing in this frame."""
    found = None
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(SOURCE):
            file = name[len(SOURCE) + 1 :].replace("\\", "/")
            if file in WHOLE:
                return WHOLE[file]
            found = found or _part(file, frame.f_code.co_name)
        frame = frame.f_back
    return found or REST


def _part(file: str, function: str) -> str | None:
    folder = file.split("/", maxsplit=1)[0] + "/"
    return PARTS.get(f"{file}:{function}") or PARTS.get(file) or PARTS.get(folder)
