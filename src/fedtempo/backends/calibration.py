"""Decides whether worker processes save time, by timing the first clients of a run.

The clock decides only where clients run. Sums are exact, so that changes no bit. The timed clients are part of the
first round: nothing is computed for the measurement alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from fedtempo.backends.backend import Backend, Block, Order
from fedtempo.backends.collect import run_blocks
from fedtempo.backends.engine import BlockScores, Calibration, Engine, EngineStatus, InProcess, Scoring, WorkerPool
from fedtempo.backends.processes import Processes
from fedtempo.federation.federation import Federation
from fedtempo.server.sums import BlockSum

LEAST_BLOCKS, LEAST_SECONDS = 2, 0.05
"""How much is timed at least. The first block also pays for one-time work, so the fastest block is taken."""
START_SECONDS = 0.5
"""What workers must save over the whole run, to pay for starting them."""
ROUND_SECONDS = 0.004
"""What workers must save in a round: about twice the cost of the messages to them."""


class Calibrated:
    """This process for the first clients of a run; from then on this process or workers, whichever is faster."""

    def __init__(
        self,
        federation: Federation,
        backend: Backend,
        workers: int,
        rounds: int,
        timeout: float | None = None,
        inherited: tuple[object, ...] = (),
    ) -> None:
        self._with = federation, backend
        self._most = workers
        self._rounds = rounds
        self._rest = timeout, inherited
        self._inside = ExitStack()
        self._engine: Engine = InProcess(federation, backend)
        self._calibration: Calibration | None = None

    @property
    def status(self) -> EngineStatus:
        """Workers replaced so far, and the measurement once it was made."""
        return EngineStatus(self._engine.status.replaced, self._calibration)

    def __enter__(self) -> Self:
        self._inside.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside.__exit__(kind, error, trace)

    def kill_worker(self) -> None:
        """Kill one of the workers, if there are any."""
        if isinstance(self._engine, WorkerPool):
            self._engine.kill_worker()

    def score(self, scoring: Scoring, blocks: Iterable[Block]) -> Iterator[BlockScores]:
        """Score wherever clients run now."""
        return self._engine.score(scoring, blocks)

    def train(self, order: Order, blocks: Iterable[Block]) -> BlockSum:
        """Train; in the first round the first few blocks are timed, here, and the rest run where that is faster."""
        if self._calibration is not None:
            return self._engine.train(order, blocks)
        waiting = list(blocks)
        count, result, took = len(waiting), BlockSum(), list[float]()
        while waiting and (len(took) < LEAST_BLOCKS or sum(took) < LEAST_SECONDS):
            started = time.perf_counter()
            run_blocks(*self._with, order, [waiting.pop(0)], result)
            took.append(time.perf_counter() - started)
        if took:
            self._settle(min(took), count)
        if waiting:
            result.add_block(self._engine.train(order, waiting))
        return result

    def _settle(self, seconds: float, blocks: int) -> None:
        """Start workers if they will save more than they cost."""
        # With w workers a round takes as long as the largest share, ceil(blocks / w) blocks. The rest is saved.
        workers = min(self._most, blocks)
        saved = seconds * (blocks - -(-blocks // workers))
        pays = saved >= ROUND_SECONDS and saved * self._rounds >= START_SECONDS
        self._calibration = Calibration(seconds, blocks, self._most if pays else 1)
        if pays:
            self._engine = self._inside.enter_context(Processes(*self._with, self._most, *self._rest))
