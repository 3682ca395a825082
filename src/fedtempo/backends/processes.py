"""Worker processes on this machine: one thread each, alive for the whole run, the data shared by forking.

Workers inherit the federation, so data are never sent. Per round they get the model once and send back one sum per
group of blocks: the traffic does not grow with the cohort. Results come back in the order of the items, so the bits are
those of the serial run whatever the number of workers. A worker that dies is replaced and its item run again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from fedtempo.backends.block import Backend
from fedtempo.backends.engine import Work
from fedtempo.backends.packing import pack, unpack
from fedtempo.errors import ConfigError, FedTempoError, TrainingError
from fedtempo.federation import Federation

MOST_DEATHS = 10
_STOP_WITHIN_SECONDS = 5.0


class _Worker(NamedTuple):
    process: ForkProcess
    pipe: Connection


class Processes:
    """An engine of forked workers."""

    def __init__(self, federation: Federation, backend: Backend, workers: int) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise ConfigError("workers must be 1 on this system, which cannot fork. Got more.")
        self._federation = federation
        self._backend = backend
        self._count = workers
        self._workers: list[_Worker] = []
        self._deaths = 0

    def __enter__(self) -> Self:
        # Bind model and program before forking, so that every worker inherits them.
        _ = self._federation.program, self._federation.trained_names, self._federation.sizes
        self._workers = [self._start() for _ in range(self._count)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.pipe.close()
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
        process = context.Process(
            target=_serve, args=(there, [here, *others], self._federation, self._backend), daemon=True
        )
        process.start()
        there.close()
        return _Worker(process, here)

    def map(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[Any]:
        """Deal items to whoever is free; yield results in the items' order."""
        waiting = list(enumerate(items))[::-1]
        running: dict[int, tuple[int, Any]] = {}
        done: dict[int, Any] = {}
        packed, next_index = pack(common), 0
        informed: set[int] = set()
        while waiting or running or done:
            for slot in range(self._count):
                if slot not in running and waiting:
                    running[slot] = waiting.pop()
                    self._send(slot, work, packed if slot not in informed else None, running[slot][1])
                    informed.add(slot)
            while next_index in done:
                yield done.pop(next_index)
                next_index += 1
            for slot in self._ready(running):
                index, item = running.pop(slot)
                try:
                    done[index] = self._receive(slot)
                except (EOFError, ConnectionError):
                    self._replace(slot)
                    informed.discard(slot)
                    waiting.append((index, item))

    def _ready(self, running: dict[int, tuple[int, Any]]) -> list[int]:
        if not running:
            return []
        by_pipe = {self._workers[slot].pipe: slot for slot in running}
        return sorted(by_pipe[pipe] for pipe in wait(list(by_pipe)) if isinstance(pipe, Connection))

    def _send(self, slot: int, work: Work, common: Any, item: Any) -> None:
        # A dead worker is found out where its result is received, and replaced there.
        with contextlib.suppress(ConnectionError):
            self._workers[slot].pipe.send((work, common, pack(item)))

    def _receive(self, slot: int) -> Any:
        kind, value = self._workers[slot].pipe.recv()
        if kind == "error":
            raise value
        return unpack(value)

    def _replace(self, slot: int) -> None:
        self._deaths += 1
        if self._deaths > MOST_DEATHS:
            raise TrainingError(f"run stopped: worker processes died {self._deaths} times.")
        self._workers[slot].pipe.close()
        self._workers[slot].process.kill()
        self._workers[slot].process.join()
        self._workers[slot] = self._start()


def _serve(pipe: Connection, foreign: list[Connection], federation: Federation, backend: Backend) -> None:
    """A worker's life: take work, send results, stop when the pipe closes."""
    for other in foreign:
        other.close()
    torch.set_num_threads(1)
    common: Any = None
    while True:
        try:
            work, packed, item = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        if packed is not None:
            common = unpack(packed)
        try:
            pipe.send(("result", pack(work(federation, backend, common, unpack(item)))))
        except FedTempoError as error:
            pipe.send(("error", error))
        except KeyboardInterrupt:
            return
        except Exception as error:  # whatever it is, the driver has to know
            pipe.send(("error", TrainingError(f"a worker failed: {type(error).__name__}: {error}")))
