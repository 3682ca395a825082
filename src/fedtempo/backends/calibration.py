"""Whether workers pay, found out from the first clients of a run.

The clock decides only where clients run. Sums are exact, so it makes no difference to a single bit, and the clients
that were timed have done a part of the first round: nothing is done for the measurement alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from fedtempo.backends.block import Backend
from fedtempo.backends.engine import Calibration, Engine, InProcess, Summing, Work
from fedtempo.backends.processes import Processes
from fedtempo.federation.federation import Federation
from fedtempo.server.sums import BlockSum

LEAST_BLOCKS, LEAST_SECONDS = 2, 0.05
"""What is timed. The first block also pays for what is done once, so the quickest one counts."""
START_SECONDS = 0.5
"""What workers must save over the whole run."""
ROUND_SECONDS = 0.004
"""What they must save in a round: about twice what it costs to talk to them."""


class Calibrated(Engine):
    """This process for the first clients of a run; from then on this process or workers, whichever is faster."""

    def __init__(self, federation: Federation, backend: Backend, workers: int, rounds: int) -> None:
        self._with = federation, backend
        self._most = workers
        self._rounds = rounds
        self._inside = ExitStack()
        self._engine: Engine = InProcess(federation, backend)

    @property
    def deaths(self) -> int:  # type: ignore[override]
        """Workers that had to be replaced so far."""
        return self._engine.deaths

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside.__exit__(kind, error, trace)

    def __enter__(self) -> Self:
        self._inside.__enter__()
        return self

    def kill_worker(self) -> None:
        """Kill one of the workers, if there are any."""
        self._engine.kill_worker()

    def map(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[Any]:
        """One result per item, wherever clients run now."""
        return self._engine.map(work, common, items)

    def add_up(self, work: Summing, common: Any, items: Iterable[Any]) -> BlockSum:
        """The sum over all items; the first few are timed."""
        if self.calibration is not None:
            return self._engine.add_up(work, common, items)
        waiting = list(items)
        blocks, result, took = len(waiting), BlockSum(), list[float]()
        while waiting and (len(took) < LEAST_BLOCKS or sum(took) < LEAST_SECONDS):
            started = time.perf_counter()
            work(*self._with, common, [waiting.pop(0)], result)
            took.append(time.perf_counter() - started)
        if took:
            self._settle(min(took), blocks)
        if waiting:
            result.add_block(self._engine.add_up(work, common, waiting))
        return result

    def _settle(self, seconds: float, blocks: int) -> None:
        """Start workers where they will save more than they cost."""
        workers = min(self._most, blocks)
        saved = seconds * (blocks - -(-blocks // workers))
        pays = saved >= ROUND_SECONDS and saved * self._rounds >= START_SECONDS
        self.calibration = Calibration(seconds, blocks, self._most if pays else 1)
        if pays:
            self._engine = self._inside.enter_context(Processes(*self._with, self._most))
