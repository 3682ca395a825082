"""Waiting for what another process or thread does."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 240.0
"""Seconds; a busy machine may need most of them, and a test that has to wait so long fails."""


def until(holds: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Ask every ten milliseconds, and say whether the condition held in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return bool(holds())
        time.sleep(0.01)
    return True


def processor_seconds(work: Callable[[], T]) -> tuple[T, float]:
    """What some work returns, and the processor time that this thread spent on it."""
    # Python looks for garbage when it likes, in all that the tests have loaded: that would fall on whoever is timed.
    gc.disable()
    began = time.thread_time()
    try:
        result = work()
        return result, time.thread_time() - began
    finally:
        gc.enable()


def allowed(seconds: float) -> float:
    """The seconds that something may take by the clock if it takes these where every process has a processor."""
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * max(1.0, 2.0 * waiting)
