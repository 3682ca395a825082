"""Worker processes for trials, one thread each. They only train: the one who asks writes down what they say."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import NamedTuple, Self

import torch

from fedtempo.tuning.trial import GoesOn, Job, Outcome, run_trial

_STOP_WITHIN_SECONDS = 5.0


class Score(NamedTuple):
    """A trial's best score after so many rounds; its worker waits to hear whether to go on."""

    number: int
    rounds: int
    value: float


class Done(NamedTuple):
    """A trial's end."""

    number: int
    outcome: Outcome


class _Worker(NamedTuple):
    process: BaseProcess
    pipe: Connection


class Crew:
    """Processes that run trials, each with a pipe to the one who asks."""

    def __init__(self, workers: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._most = workers
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        everybody = [*self._idle, *self._busy.values()]
        for worker in everybody:
            worker.pipe.close()
            worker.process.terminate()
        for worker in everybody:
            worker.process.join(_STOP_WITHIN_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    @property
    def has_room(self) -> bool:
        """Whether another trial can start."""
        return len(self._busy) < self._most

    @property
    def at_rest(self) -> bool:
        """Whether no trial is running."""
        return not self._busy

    def start(self, job: Job) -> None:
        """Hand a trial to a worker that is free, or to a new one."""
        worker = self._idle.pop() if self._idle else self._hired()
        self._busy[job.number] = worker
        with contextlib.suppress(ConnectionError):  # a worker that died meanwhile is found out in `messages`
            worker.pipe.send(job)

    def answer(self, number: int, goes_on: bool) -> None:
        """Tell a waiting trial whether to go on."""
        with contextlib.suppress(ConnectionError):
            self._busy[number].pipe.send(goes_on)

    def messages(self) -> Iterator[Score | Done]:
        """Wait until somebody says something; what they said, in the order of the trials."""
        ready = set(wait([worker.pipe for worker in self._busy.values()]))
        for number, worker in sorted(self._busy.items()):
            if worker.pipe not in ready:
                continue
            try:
                message: Score | Done = worker.pipe.recv()
            except (EOFError, ConnectionError):
                self._busy.pop(number)
                worker.pipe.close()
                worker.process.join()
                reason = f"its worker process died (exit code {worker.process.exitcode})"
                message = Done(number, Outcome("failed", reason=reason))
            else:
                if isinstance(message, Done):
                    self._idle.append(self._busy.pop(number))
            yield message

    def _hired(self) -> _Worker:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(there,), daemon=True)
        process.start()
        there.close()
        return _Worker(process, here)


def _serve(pipe: Connection) -> None:
    """A worker's life: trials come in, scores and outcomes go out, until nobody is at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks, who then ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            job: Job = pipe.recv()
            pipe.send(Done(job.number, run_trial(job, _asked(pipe, job.number))))


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers, and whoever goes on wants their folders."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _asked(pipe: Connection, number: int) -> GoesOn:
    def goes_on(rounds: int, value: float) -> bool:
        pipe.send(Score(number, rounds, value))
        return bool(pipe.recv())

    return goes_on
