"""An engine whose clients are asked one by one and answer when they can: for servers that do not wait.

Every client that was asked has a thread of its own, which waits for its answer. The answers are taken in the order in
which they come.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator

from fedtempo.backends import Block, Engine, Order
from fedtempo.backends.engine import BlockScores, EngineStatus, Scoring
from fedtempo.server.sums import BlockSum, total


class AskedEngine:
    """Wraps an engine whose `train` blocks until a client has answered, and which may be called by several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pending: set[int] = set()
        self._answers: queue.Queue[tuple[int, BlockSum | BaseException]] = queue.Queue()
        self._arrived: dict[int, BlockSum] = {}
        self._since = time.perf_counter()

    @property
    def status(self) -> EngineStatus:
        """The status of the wrapped engine."""
        return self._engine.status

    def asked(self, client: int) -> bool:
        """Whether this client has been asked and its answer was not taken yet."""
        return client in self._pending

    def ask(self, client: int, order: Order, blocks: Iterable[Block]) -> None:
        """Ask a client to train, without waiting for its answer."""
        work = list(blocks)  # read now, in this thread: the store belongs to it

        def answer() -> None:
            try:
                self._answers.put((client, self._engine.train(order, work)))
            except BaseException as error:  # `wait` raises it in the main thread
                self._answers.put((client, error))

        self._pending.add(client)
        # A daemon: a server that is done, or is interrupted, does not wait for clients that are still at work.
        threading.Thread(target=answer, name=f"client {client}", daemon=True).start()

    def wait(self) -> tuple[int, float]:
        """The next client that answers, and the seconds since the one before it."""
        client, answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        self._arrived[client] = answer
        self._pending.discard(client)
        before, self._since = self._since, time.perf_counter()
        return client, self._since - before

    def train(self, order: Order, blocks: Iterable[Block]) -> BlockSum:
        """The sum of what these clients have answered; `wait` has returned each of them."""
        return total(self._arrived.pop(client) for block in blocks for client in block.clients.tolist())

    def score(self, scoring: Scoring, blocks: Iterable[Block]) -> Iterator[BlockScores]:
        """The scores from the wrapped engine."""
        return self._engine.score(scoring, blocks)
