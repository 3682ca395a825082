"""Worker processes on this machine: one thread each, alive for the whole run, the data shared by forking.

Workers inherit the federation, so data are never sent. Per round they get the model once and send back a few sums: the
traffic does not grow with the cohort. Sums are exact, so the bits are those of the serial run whatever the number of
workers and whoever did what. A worker that dies is replaced and its items are run again.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import torch

from fedtempo.backends.block import Backend
from fedtempo.backends.engine import Engine, Summing, Work
from fedtempo.backends.mailbox import Mailbox
from fedtempo.errors import ConfigError, FedTempoError, TrainingError
from fedtempo.federation.federation import Federation
from fedtempo.server.sums import BlockSum

MOST_DEATHS = 10
COPIES_OF_THE_MODEL = 16
"""How many models in float64 fit a worker's mailbox; memory is taken only when it is written to."""
_STOP_WITHIN_SECONDS = 5.0
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's `mallopt`."""


class _Worker(NamedTuple):
    process: ForkProcess
    pipe: Connection
    mailbox: Mailbox


Hand = list[tuple[int, Any]]
"""Items with their places in the order."""


class Task(NamedTuple):
    """What a worker is asked: to map a hand, to add it to its sum, or to add it and hand the sum over."""

    kind: Literal["map", "add", "finish"]
    hand: Hand


class Processes(Engine):
    """An engine of forked workers."""

    def __init__(self, federation: Federation, backend: Backend, workers: int) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise ConfigError("workers must be 1 on this system, which cannot fork. Got more.")
        self._federation = federation
        self._backend = backend
        self._count = workers
        self._workers: list[_Worker] = []
        self.deaths = 0
        self._in_a_row = 0
        self._model_bytes = 8 * sum(t.numel() for t in federation.model.state_dict().values())

    def __enter__(self) -> Self:
        # Bind model and program before forking, so that every worker inherits them.
        _ = self._federation.program, self._federation.trained_names, self._federation.sizes
        for _ in range(self._count):
            self._workers.append(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
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
        context: ForkContext = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        others = [worker.pipe for worker in self._workers]
        mailbox = Mailbox(COPIES_OF_THE_MODEL * self._model_bytes)
        process = context.Process(
            target=_serve, args=(there, mailbox, [here, *others], self._federation, self._backend), daemon=True
        )
        with warnings.catch_warnings():
            # Newer Pythons warn about forking beside threads; our workers only ever use what this thread owns.
            warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
            process.start()
        there.close()
        return _Worker(process, here, mailbox)

    def map(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[Any]:
        """Deal items to whoever is free, the larger part at once; yield results in the items' order."""
        waiting = dealt(list(enumerate(items)), self._count)
        done: dict[int, Any] = {}
        next_index = 0

        def deal(slot: int) -> Task | None:
            return Task("map", waiting.pop()) if waiting else None

        for slot, task, packed in self._play(work, common, deal, lambda slot, task: waiting.append(task.hand)):
            results = self._workers[slot].mailbox.unpack(packed)
            done.update(zip((index for index, _ in task.hand), results, strict=True))
            while next_index in done:
                yield done.pop(next_index)
                next_index += 1

    def add_up(self, work: Summing, common: Any, items: Iterable[Any]) -> BlockSum:
        """Every worker adds up what it does, and hands over its sum with the last of it."""
        waiting = dealt(list(enumerate(items)), self._count)
        inside: dict[int, list[Hand]] = {slot: [] for slot in range(self._count)}

        def deal(slot: int) -> Task | None:
            if waiting:
                hand = waiting.pop()
                return Task("add" if len(waiting) >= self._count else "finish", hand)
            return Task("finish", []) if inside[slot] else None

        def lose(slot: int, task: Task) -> None:
            waiting.extend(hand for hand in (task.hand, *inside[slot]) if hand)
            inside[slot] = []

        result = BlockSum()
        for slot, task, packed in self._play(work, common, deal, lose):
            if task.kind == "add":
                inside[slot].append(task.hand)
            else:
                self._merge(result, slot, packed)
                inside[slot] = []
        return result

    def _merge(self, result: BlockSum, slot: int, packed: BlockSum) -> None:
        """Add a worker's sum from where it lies in shared memory."""
        mailbox = self._workers[slot].mailbox
        result.add_block(mailbox.unpack(replace(packed, sums={})))
        result.add_sums(mailbox.unpack(packed.sums, copy=not result.sums))

    def _play(
        self,
        work: Callable[..., Any],
        common: Any,
        deal: Callable[[int], Task | None],
        lose: Callable[[int, Task], None],
    ) -> Iterator[tuple[int, Task, Any]]:
        """Deal tasks until there are none; yield who did which, with what came back. A dead worker's task is lost."""
        running: dict[int, Task] = {}
        informed: set[int] = set()
        while True:
            for slot in range(self._count):
                task = None if slot in running else deal(slot)
                if task is not None:
                    running[slot] = task
                    items = [item for _, item in task.hand]
                    self._send(slot, (task.kind, work, common if slot not in informed else None, items))
                    informed.add(slot)
            if not running:
                return
            for slot in self._ready(running):
                task = running.pop(slot)
                try:
                    packed = self._receive(slot)
                except (EOFError, ConnectionError):
                    self._replace(slot)
                    informed.discard(slot)
                    lose(slot, task)
                else:
                    yield slot, task, packed

    def kill_worker(self) -> None:
        """Kill the worker that is the next to get work."""
        self._workers[0].process.kill()

    def _ready(self, running: Collection[int]) -> list[int]:
        by_pipe = {self._workers[slot].pipe: slot for slot in running}
        return sorted(by_pipe[pipe] for pipe in wait(list(by_pipe)) if isinstance(pipe, Connection))

    def _send(self, slot: int, message: tuple[str, Callable[..., Any], Any, list[Any]]) -> None:
        # A dead worker is found out where its result is received, and replaced there.
        worker = self._workers[slot]
        with contextlib.suppress(ConnectionError):
            worker.pipe.send(worker.mailbox.pack(message))

    def _receive(self, slot: int) -> Any:
        worker = self._workers[slot]
        kind, value = worker.pipe.recv()
        self._in_a_row = 0
        if kind == "error":
            raise value
        return value

    def _replace(self, slot: int) -> None:
        self.deaths += 1
        self._in_a_row += 1
        if self._in_a_row > MOST_DEATHS:
            raise TrainingError(f"run stopped: worker processes died {self._in_a_row} times in a row.")
        self._workers[slot].pipe.close()
        self._workers[slot].process.kill()
        self._workers[slot].process.join()
        self._workers[slot] = self._start()


def dealt(items: Hand, workers: int) -> list[Hand]:
    """Hands of items, the next one last: three quarters in a hand per worker, then half of the others, then singly."""
    hands: list[Hand] = []
    for share in (3 / 4, 1 / 2):
        size = int(len(items) * share) // workers
        if size > 1:
            hands += [items[i * size : (i + 1) * size] for i in range(workers)]
            items = items[workers * size :]
    return [*([item] for item in reversed(items)), *reversed(hands)]


def dealt_for_sums(items: Hand, workers: int) -> list[Hand]:
    """Hands for work whose sums travel: three per worker, of falling size, the next one last."""
    hands, rest = [], items
    for share in (5 / 8, 2 / 3, 1.0):
        size = -(-round(len(rest) * share) // workers)
        hands += [rest[i * size : (i + 1) * size] for i in range(workers)]
        rest = rest[workers * size :]
    return [hand for hand in reversed(hands) if hand]


def _serve(
    pipe: Connection, mailbox: Mailbox, foreign: list[Connection], federation: Federation, backend: Backend
) -> None:
    """A worker's life: take work, send results, stop when the pipe closes."""
    for other in foreign:
        other.close()
    torch.set_num_threads(1)
    _keep_freed_memory()
    desk = _Desk(federation, backend)
    while True:
        try:
            kind, value = answered(desk.do, *mailbox.unpack(pipe.recv()))
            pipe.send((kind, mailbox.pack(value)))
        except (EOFError, ConnectionError, KeyboardInterrupt):
            return


class _Desk:
    """What a worker has before it: the message that all items share, and the sum it is making."""

    def __init__(self, federation: Federation, backend: Backend) -> None:
        self._with = federation, backend
        self._common: Any = None
        self._sum = BlockSum()

    def do(self, kind: str, work: Callable[..., Any], news: Any, items: list[Any]) -> Any:
        """Map items, or add them to the sum; `finish` hands the sum over."""
        if news is not None:
            self._common, self._sum = news, BlockSum()
        if kind == "map":
            return [work(*self._with, self._common, item) for item in items]
        work(*self._with, self._common, items, self._sum)
        if kind == "add":
            return None
        done, self._sum = self._sum, BlockSum()
        return done


def _keep_freed_memory() -> None:
    """Let the C library keep what is freed: a worker needs it again at once, and fresh pages are slow to get."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, 2**30)
        library.mallopt(_MMAP_THRESHOLD, 2**25)


def answered(compute: Callable[..., Any], *arguments: Any) -> tuple[str, Any]:
    """What was computed, or the error that kept it from being; ours as they are."""
    try:
        return "result", compute(*arguments)
    except FedTempoError as error:
        return "error", error
    except Exception as error:  # whatever it is, the driver has to know
        return "error", TrainingError(f"a worker failed: {type(error).__name__}: {error}")
