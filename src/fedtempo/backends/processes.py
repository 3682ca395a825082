"""Worker processes on this machine: one thread each, alive for the whole run.

Forked workers inherit the federation, so data are never sent; where forking is not safe (`start.py`), workers are
spawned and get it once, as bytes. Per round they get the model once and send back a few sums: the
traffic does not grow with the cohort. Sums are exact, so the bits are those of the serial run, whatever the number of
workers and whichever worker trained a client. A worker that dies or hangs is replaced and its blocks run again.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, NamedTuple, Self

from fedtempo.backends.backend import Backend, Block, Order
from fedtempo.backends.engine import BlockScores, EngineStatus, Scoring
from fedtempo.backends.mailbox import Mailbox, SharedBuffers, by_place
from fedtempo.backends.pace import Pace
from fedtempo.backends.shipment import sending, serialise
from fedtempo.backends.start import SENDS, required_start_method, without_main
from fedtempo.backends.worker import Assignment, Chunk, serve, serve_spawned
from fedtempo.errors import WorkersLostError
from fedtempo.federation.federation import Federation
from fedtempo.server.sums import BlockSum
from fedtempo.support.extras import library

MOST_DEATHS = 10
COPIES_OF_THE_MODEL = 16
"""How many models in float64 fit a worker's mailbox; memory is taken only when it is written to."""
COPIES_WHEN_SPAWNED = 4
"""The same for a spawned worker, whose memory is taken at once: the model down, and both parts of a sum up."""
MOST_NAMED = 5
"""Clients that an error message names."""
_STOP_WITHIN_SECONDS = 5.0
_LAST_WORDS_SECONDS = 1.0


class _Worker(NamedTuple):
    process: BaseProcess
    pipe: Connection
    mailbox: Mailbox


class Processes:
    """An engine of worker processes. Use it in a `with` block; leaving it ends the workers."""

    def __init__(
        self,
        federation: Federation,
        backend: Backend,
        workers: int,
        timeout: float | None = None,
        inherited: tuple[object, ...] = (),
    ) -> None:
        """`inherited` are values that workers get at their start, and that messages then only refer to."""
        self._inherited = inherited
        self._method = required_start_method()
        self._content = b""
        self._federation = federation
        self._backend = backend
        self._count = workers
        self._workers: list[_Worker] = []
        self._pace = Pace(timeout)
        self._deaths_in_a_row = 0
        model = federation.problem.model
        self._model_bytes = 8 * sum(t.numel() for t in (*model.parameters(), *model.buffers()))
        self.status = EngineStatus()

    def __enter__(self) -> Self:
        # Bind model and program before forking, so that every worker inherits them instead of building its own.
        _ = self._federation.program, self._federation.trained_names, self._federation.problem.sizes
        if self._method == "spawn":
            sender = library(SENDS, None, "a spawned worker")
            with sending("a spawned worker"):
                self._content = sender.dumps((serialise(self._federation, None), self._backend, self._inherited))
        for _ in range(self._count):
            self._workers.append(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            # A worker ends by itself when its pipe closes. After an error it may be in the middle of a block: kill it.
            worker.pipe.close()
            if kind is not None:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join(_STOP_WITHIN_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers = []

    def _start(self) -> _Worker:
        return self._forked() if self._method == "fork" else self._spawned()

    def _spawned(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        size = max(COPIES_WHEN_SPAWNED * self._model_bytes, mmap.PAGESIZE)
        shared = SharedBuffers(context.RawArray("b", size), context.RawArray("q", 1))
        process = context.Process(target=serve_spawned, args=(there, shared, self._content), daemon=True)
        with without_main():
            process.start()
        there.close()
        return _Worker(process, here, Mailbox(shared))

    def _forked(self) -> _Worker:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        # A fork inherits the driver's ends of all pipes and has to close them. While any process holds an end open, the
        # other side never sees the end of file by which a death is noticed.
        foreign = [here, *(worker.pipe for worker in self._workers)]
        mailbox = Mailbox(COPIES_OF_THE_MODEL * self._model_bytes)
        arguments = (there, mailbox, foreign, self._federation, self._backend, self._inherited)
        process = context.Process(target=serve, args=arguments, daemon=True)
        with warnings.catch_warnings():
            # Newer Pythons warn about forking beside threads. Our workers only use objects of the forking thread.
            warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
            process.start()
        there.close()
        return _Worker(process, here, mailbox)

    def score(self, scoring: Scoring, blocks: Iterable[Block]) -> Iterator[BlockScores]:
        """Score blocks on whichever worker is free; yield the scores in the order of the blocks."""
        waiting = chunked(list(enumerate(blocks)), self._count)
        done: dict[int, BlockScores] = {}
        next_index = 0

        def assign(slot: int) -> Assignment | None:
            return Assignment("score", waiting.pop()) if waiting else None

        for slot, task, packed in self._dispatch(scoring, assign, lambda slot, task: waiting.append(task.chunk)):
            results = self._workers[slot].mailbox.unpack(packed)
            done.update(zip((index for index, _ in task.chunk), results, strict=True))
            while next_index in done:
                yield done.pop(next_index)
                next_index += 1

    def train(self, order: Order, blocks: Iterable[Block]) -> BlockSum:
        """Every worker adds up what it trains, and hands its sum over with its last chunk."""
        waiting = chunked(list(enumerate(blocks)), self._count)
        in_worker: dict[int, list[Chunk]] = {slot: [] for slot in range(self._count)}
        """Chunks whose sums are still inside a worker: lost with it if it dies."""

        def assign(slot: int) -> Assignment | None:
            if waiting:
                # While enough chunks wait, a worker keeps its sum and goes on. With its last chunk it sends the sum, so
                # sums travel once per worker and not once per chunk.
                chunk = waiting.pop()
                return Assignment("train" if len(waiting) >= self._count else "finish", chunk)
            return Assignment("finish", []) if in_worker[slot] else None

        def lose(slot: int, task: Assignment) -> None:
            # All chunks whose sums died with the worker run again, not only the one it was working on.
            waiting.extend(chunk for chunk in (task.chunk, *in_worker[slot]) if chunk)
            in_worker[slot] = []

        result = BlockSum()
        for slot, task, packed in self._dispatch(order, assign, lose):
            if task.kind == "train":
                in_worker[slot].append(task.chunk)
            else:
                self._merge(result, slot, packed)
                in_worker[slot] = []
        return result

    def _merge(self, result: BlockSum, slot: int, packed: BlockSum) -> None:
        """Add a worker's sum from where it lies in shared memory."""
        mailbox = self._workers[slot].mailbox
        result.add_block(mailbox.unpack(replace(packed, sums={})))
        # The first sum becomes the result and must survive the mailbox's next message; later ones are added at once.
        result.add_sums(mailbox.unpack(packed.sums, copy=not result.sums))

    def _dispatch(
        self,
        common: Any,
        assign: Callable[[int], Assignment | None],
        lose: Callable[[int, Assignment], None],
    ) -> Iterator[tuple[int, Assignment, Any]]:
        """Give out assignments until there are none; yield each with its worker and what came back.

        The chunk of a worker that died or hung goes back by `lose`.
        """
        common = by_place(common, self._inherited)
        running: dict[int, Assignment] = {}
        # Workers that have this round's model. It is sent to each worker once, with its first chunk.
        informed: set[int] = set()
        while True:
            for slot in range(self._count):
                task = None if slot in running else assign(slot)
                if task is not None:
                    running[slot] = task
                    blocks = [block for _, block in task.chunk]
                    self._send(slot, (task.kind, common if slot not in informed else None, blocks))
                    informed.add(slot)
            if not running:
                return
            answered, hung = self._ready(running)
            for slot in (*answered, *hung):
                task = running.pop(slot)
                try:
                    if slot in hung:
                        raise EOFError  # a hung worker is treated like a dead one
                    packed = self._receive(slot)
                except (EOFError, ConnectionError):
                    self._replace(slot, task)
                    informed.discard(slot)
                    lose(slot, task)
                else:
                    yield slot, task, packed

    def kill_worker(self) -> None:
        """Kill the worker that is the next to get work."""
        self._workers[0].process.kill()

    def _ready(self, running: Collection[int]) -> tuple[list[int], list[int]]:
        """Wait for an answer; returns the workers that answered (or died), and those that hang."""
        by_pipe = {self._workers[slot].pipe: slot for slot in running}
        while True:
            answered = sorted(by_pipe[p] for p in wait(list(by_pipe), self._pace.glance) if isinstance(p, Connection))
            progress = {slot: self._workers[slot].mailbox.progress for slot in running}
            hung = [slot for slot in self._pace.hung(progress) if slot not in answered]
            if answered or hung:
                return answered, hung

    def _send(self, slot: int, message: tuple[str, Any, list[Block]]) -> None:
        # A worker may have died already. That is noticed and mended in one place: where its result is received.
        worker = self._workers[slot]
        self._pace.started(slot, worker.mailbox.progress)
        with contextlib.suppress(ConnectionError):
            worker.pipe.send(worker.mailbox.pack(message))

    def _receive(self, slot: int) -> Any:
        kind, value = self._workers[slot].pipe.recv()
        self._deaths_in_a_row = 0
        if kind == "error":
            raise value
        return value

    def _replace(self, slot: int, task: Assignment) -> None:
        self.status.replaced += 1
        self._deaths_in_a_row += 1
        process = self._workers[slot].process
        self._workers[slot].pipe.close()
        # A worker closes its pipe a moment before it ends. Killed at once, it would seem to have died of our signal.
        process.join(_LAST_WORDS_SECONDS)
        hung = process.is_alive()
        process.kill()
        process.join()
        if self._deaths_in_a_row > MOST_DEATHS:
            why = "it gave no sign of life" if hung else _end_in_words(process.exitcode)
            raise WorkersLostError(
                f"run stopped: worker processes died {self._deaths_in_a_row} times in a row. The last: {why}, working "
                f"on {clients_in_words(task.chunk)}. Use fewer workers if memory is short; without workers, "
                "backend='serial' shows what happens in this process."
            )
        self._workers[slot] = self._start()


def _end_in_words(code: int | None) -> str:
    """How a process ended; multiprocessing has the signal that ended it as a negative code."""
    if code is None or code >= 0:
        return f"it ended with exit code {code}"
    known = code in {-each for each in signal.Signals}
    return f"it was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"


def clients_in_words(chunk: Chunk) -> str:
    """The clients of a chunk, the first ones by number."""
    numbers = [str(client) for _, block in chunk for client in block.clients.tolist()]
    more = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
    return f"client{'s' * (len(numbers) > 1)} {', '.join(numbers[:MOST_NAMED])}{more}" if numbers else "its last sum"


def chunked(blocks: Chunk, workers: int) -> list[Chunk]:
    """Chunks of blocks, the next one last: three quarters in one chunk per worker, half of the rest, then singly.

    Large chunks first save messages; single blocks at the end let the workers finish together.
    """
    chunks: list[Chunk] = []
    for share in (3 / 4, 1 / 2):
        size = int(len(blocks) * share) // workers
        if size > 1:
            chunks += [blocks[i * size : (i + 1) * size] for i in range(workers)]
            blocks = blocks[workers * size :]
    return [*([block] for block in reversed(blocks)), *reversed(chunks)]


def chunked_for_sums(blocks: Chunk, workers: int) -> list[Chunk]:
    """Chunks for workers whose sums travel: three per worker, of falling size, the next one last."""
    chunks, rest = [], blocks
    for share in (5 / 8, 2 / 3, 1.0):
        size = -(-round(len(rest) * share) // workers)
        chunks += [rest[i * size : (i + 1) * size] for i in range(workers)]
        rest = rest[workers * size :]
    return [chunk for chunk in reversed(chunks) if chunk]
