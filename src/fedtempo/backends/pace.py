"""How long a worker may be silent before it counts as hung.

A worker shows progress by counting the blocks it has finished. Blocks of one run take about the same time, so a worker
that is silent for many times the slowest block so far is not slow: it is stopped, swapped out or deadlocked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

PATIENCE = 20.0
"""Multiples of the slowest block so far."""
LEAST_SECONDS = 60.0
"""No worker counts as hung sooner than this."""
UNKNOWN_SECONDS = 600.0
"""The limit before the first block is finished, when nobody knows yet how long a block takes."""


class Pace:
    """Watches workers' counts of finished blocks. `timeout` seconds of silence replace the rule."""

    def __init__(self, timeout: float | None = None) -> None:
        self._timeout = timeout
        self._slowest: float | None = None
        self._seen: dict[int, tuple[int, float]] = {}

    @property
    def limit(self) -> float:
        """Seconds of silence that are too many."""
        if self._timeout is not None:
            return self._timeout
        return UNKNOWN_SECONDS if self._slowest is None else max(LEAST_SECONDS, PATIENCE * self._slowest)

    @property
    def glance(self) -> float:
        """Seconds between two looks at the workers."""
        return min(1.0, self.limit / 4)

    def started(self, worker: int, count: int, now: float | None = None) -> None:
        """Note that a worker got blocks to run; its silence counts from now."""
        self._seen[worker] = count, time.monotonic() if now is None else now

    def finished(self, worker: int, blocks: int, now: float | None = None) -> None:
        """Note that a worker has finished all its blocks, which tells their pace even if nobody looked meanwhile."""
        now = time.monotonic() if now is None else now
        _, since = self._seen.pop(worker, (0, now))
        self._slowest = max(self._slowest or 0.0, (now - since) / max(blocks, 1))

    def hung(self, counts: Mapping[int, int], now: float | None = None) -> list[int]:
        """The workers that have been silent for too long, given everybody's count of finished blocks."""
        now = time.monotonic() if now is None else now
        silent = []
        for worker, count in counts.items():
            before, since = self._seen.setdefault(worker, (count, now))
            if count != before:
                taken = (now - since) / (count - before)
                self._slowest = max(self._slowest or 0.0, taken)
                self._seen[worker] = count, now
            elif now - since > self.limit:
                silent.append(worker)
        return silent
