"""Worker processes on this machine: one thread each, alive for the whole run, the data shared by forking.

Workers inherit the federation, so data are never sent. Per round they get the model once and send back a few sums: the
traffic does not grow with the cohort. Sums are exact, so the bits are those of the serial run whatever the number of
workers and whoever did what. A worker that dies is replaced and its items are run again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from fedtempo.aggregation import BlockSum, total
from fedtempo.backends.engine import Engine, Work
from fedtempo.backends.packing import Mailbox
from fedtempo.backends.trained import Backend
from fedtempo.errors import ConfigError, FedTempoError, TrainingError
from fedtempo.federation import Federation

MOST_DEATHS = 10
COPIES_OF_THE_MODEL = 16
"""How many models in float64 fit a worker's mailbox; memory is taken only when it is written to."""
_STOP_WITHIN_SECONDS = 5.0


class _Worker(NamedTuple):
    process: ForkProcess
    pipe: Connection
    mailbox: Mailbox


Gather = Callable[[Iterable[Any]], Any]
"""What a worker makes of the results of a hand of items: a list, or their sum."""


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
        done: dict[int, Any] = {}
        next_index = 0
        for indices, mailbox, packed in self._arrivals(list, work, common, items):
            done.update(zip(indices, mailbox.unpack(packed), strict=True))
            while next_index in done:
                yield done.pop(next_index)
                next_index += 1

    def add_up(self, work: Work, common: Any, items: Iterable[Any]) -> BlockSum:
        """Workers add up what they did themselves; their sums are added from where they lie in shared memory."""
        result = BlockSum()
        for _, mailbox, packed in self._arrivals(total, work, common, items):
            result.add_block(mailbox.unpack(replace(packed, sums={})))
            result.add_sums(mailbox.unpack(packed.sums, copy=not result.sums))
        return result

    def _arrivals(
        self, gather: Gather, work: Work, common: Any, items: Iterable[Any]
    ) -> Iterator[tuple[list[int], Mailbox, Any]]:
        """Indices of items and what came of them, as it comes, packed; the next one may come in the same memory."""
        waiting = dealt(list(enumerate(items)), self._count)
        running: dict[int, list[tuple[int, Any]]] = {}
        informed: set[int] = set()
        while waiting or running:
            for slot in range(self._count):
                if slot not in running and waiting:
                    running[slot] = waiting.pop()
                    self._send(slot, (gather, work), common if slot not in informed else None, running[slot])
                    informed.add(slot)
            for slot in self._ready(running):
                hand = running.pop(slot)
                try:
                    packed = self._receive(slot)
                except (EOFError, ConnectionError):
                    self._replace(slot)
                    informed.discard(slot)
                    waiting.append(hand)
                else:
                    yield [index for index, _ in hand], self._workers[slot].mailbox, packed

    def _ready(self, running: Collection[int]) -> list[int]:
        if not running:
            return []
        by_pipe = {self._workers[slot].pipe: slot for slot in running}
        return sorted(by_pipe[pipe] for pipe in wait(list(by_pipe)) if isinstance(pipe, Connection))

    def _send(self, slot: int, work: tuple[Gather, Work], common: Any, hand: list[tuple[int, Any]]) -> None:
        # A dead worker is found out where its result is received, and replaced there.
        worker = self._workers[slot]
        with contextlib.suppress(ConnectionError):
            worker.pipe.send((work, worker.mailbox.pack((common, [item for _, item in hand]))))

    def _receive(self, slot: int) -> Any:
        worker = self._workers[slot]
        kind, value = worker.pipe.recv()
        if kind == "error":
            raise value
        return value

    def _replace(self, slot: int) -> None:
        self.deaths += 1
        if self.deaths > MOST_DEATHS:
            raise TrainingError(f"run stopped: worker processes died {self.deaths} times.")
        self._workers[slot].pipe.close()
        self._workers[slot].process.kill()
        self._workers[slot].process.join()
        self._workers[slot] = self._start()


def dealt(items: list[tuple[int, Any]], workers: int) -> list[list[tuple[int, Any]]]:
    """Hands of items, the next one last: three quarters in one hand per worker, the others singly to even it out."""
    size = len(items) * 3 // (4 * workers)
    large = [items[i * size : (i + 1) * size] for i in range(workers if size > 1 else 0)]
    rest = items[sum(map(len, large)) :]
    return [*([item] for item in reversed(rest)), *reversed(large)]


def _serve(
    pipe: Connection, mailbox: Mailbox, foreign: list[Connection], federation: Federation, backend: Backend
) -> None:
    """A worker's life: take work, send results, stop when the pipe closes."""
    for other in foreign:
        other.close()
    torch.set_num_threads(1)
    common: Any = None
    while True:
        try:
            (gather, work), message = pipe.recv()
            news, items = mailbox.unpack(message)
            common = common if news is None else news
            kind, value = answered(gather, (work(federation, backend, common, item) for item in items))
            pipe.send((kind, mailbox.pack(value)))
        except (EOFError, ConnectionError, KeyboardInterrupt):
            return


def answered(compute: Callable[..., Any], *arguments: Any) -> tuple[str, Any]:
    """What was computed, or the error that kept it from being; ours as they are."""
    try:
        return "result", compute(*arguments)
    except FedTempoError as error:
        return "error", error
    except Exception as error:  # whatever it is, the driver has to know
        return "error", TrainingError(f"a worker failed: {type(error).__name__}: {error}")
