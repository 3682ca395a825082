"""Whole runs in processes of their own, one thread each: the trials of a search, the runs of a reproduction."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import torch

from fedtempo.errors import FedTempoError, TrainingError, require
from fedtempo.support.accelerator import accelerator_in_use
from fedtempo.support.threads import usable_processors

STOP_WITHIN_SECONDS = 5.0
Ask = Callable[[Any], Any]
"""Puts a question to the pool's owner and waits for the answer."""
Perform = Callable[[Any, Ask], Any]
"""What a worker does with a job; what it returns is the job's result."""


LEAST_ROUNDS = 100
"""Rounds of all runs together from which processes are started for them unasked: each takes seconds to start."""


class RunsAtOnce(NamedTuple):
    """How several runs share the processors."""

    workers: int
    """Whole runs side by side; 1 where they come one after the other, each with all processors."""
    why: str

    def __str__(self) -> str:
        if self.workers == 1:
            return f"one run after the other, clients of a run over the processors ({self.why})"
        return f"{self.workers} whole runs at a time, each in one process ({self.why})"


def runs_at_once(asked: int | None, runs: int, rounds: int) -> RunsAtOnce:
    """What was asked for, or the faster way: whole runs need no messages between processes, so no processor waits.

    The numbers are the same either way. `rounds` are those of all runs together.
    """
    if asked is not None:
        return RunsAtOnce(asked, "as asked for")
    processors = usable_processors()
    if processors == 1:
        return RunsAtOnce(1, "there is one processor")
    if runs < processors:
        return RunsAtOnce(1, f"{runs} runs for {processors} processors")
    if rounds < LEAST_ROUNDS:
        return RunsAtOnce(1, f"{rounds} rounds in all, too few to start processes for")
    return RunsAtOnce(processors, f"{runs} runs for {processors} processors")


class WorkerDiedError(TrainingError):
    """A worker process ended without an answer: it was killed, or ran out of memory."""


class Asked(NamedTuple):
    """A job waits for an answer."""

    number: int
    question: Any


class Done(NamedTuple):
    """A job's end: what it returned, or the error that ended it."""

    number: int
    result: Any
    error: Exception | None = None


class _Worker(NamedTuple):
    process: BaseProcess
    pipe: Connection


class Pool:
    """Processes that perform one job after the other, each with a pipe to the owner.

    They start when they are first needed. By "spawn", a worker is a new process that imports everything, and jobs and
    `perform` are pickled; by "fork", it is a copy of this one, which may hold what cannot be pickled.
    """

    def __init__(self, perform: Perform, workers: int, method: Literal["fork", "spawn"]) -> None:
        rule = "1 once this process has used an accelerator, whose state does not survive a fork"
        require(method != "fork" or not accelerator_in_use(), "workers", rule, workers)
        self._context: Any = multiprocessing.get_context(method)
        self._perform = perform
        self._most = workers
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        workers = [*self._idle, *self._busy.values()]
        for worker in workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in workers:
            worker.process.join(STOP_WITHIN_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    @property
    def has_room(self) -> bool:
        """Whether another job can start."""
        return len(self._busy) < self._most

    @property
    def at_rest(self) -> bool:
        """Whether no job is running."""
        return not self._busy

    def start(self, number: int, job: object) -> None:
        """Give a job to a worker that is free, or to a new one."""
        worker = self._idle.pop() if self._idle else self._new_worker()
        self._busy[number] = worker
        with contextlib.suppress(ConnectionError):  # a worker that died meanwhile is found out in `messages`
            worker.pipe.send((number, job))

    def perform(self, jobs: Iterable[tuple[int, object]]) -> Iterator[Asked | Done]:
        """Start the jobs, each with its number, as workers become free; yield what workers say until all are done.

        The next job is asked for only when a worker is free: it may depend on how the earlier ones ended.
        """
        waiting = iter(jobs)
        while True:
            while self.has_room and (following := next(waiting, None)) is not None:
                self.start(*following)
            if self.at_rest:
                return
            yield from self.messages()

    def answer(self, number: int, answer: object) -> None:
        """Answer the job that asked."""
        with contextlib.suppress(ConnectionError):
            self._busy[number].pipe.send(answer)

    def messages(self) -> Iterator[Asked | Done]:
        """Wait until a worker says something; what they said, in the order of the jobs."""
        ready = set(wait([worker.pipe for worker in self._busy.values()]))
        for number, worker in sorted(self._busy.items()):
            if worker.pipe not in ready:
                continue
            try:
                message: Asked | Done = worker.pipe.recv()
            except (EOFError, ConnectionError):
                self._busy.pop(number)
                worker.pipe.close()
                worker.process.join()
                died = WorkerDiedError(f"its worker process died (exit code {worker.process.exitcode})")
                message = Done(number, None, died)
            else:
                if isinstance(message, Done):
                    self._idle.append(self._busy.pop(number))
            yield message

    def _new_worker(self) -> _Worker:
        here, there = self._context.Pipe()
        # A forked worker inherits our ends of all pipes; it would not notice that we closed one while it holds a copy.
        others = [worker.pipe for worker in (*self._idle, *self._busy.values())] + [here]
        inherited = others if self._context.get_start_method() == "fork" else []
        process = self._context.Process(target=_serve, args=(there, inherited, self._perform), daemon=True)
        with warnings.catch_warnings():
            # Newer Pythons warn about forking beside threads; a worker only uses what this thread owns.
            warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
            process.start()
        there.close()
        return _Worker(process, here)


def _serve(pipe: Connection, inherited: list[Connection], perform: Perform) -> None:
    """The main loop of a worker: receive jobs, send questions and results, end when the pipe closes."""
    for other in inherited:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, who then ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            number, job = pipe.recv()
            pipe.send(_performed(perform, number, job, _asking(pipe, number)))


def _performed(perform: Perform, number: int, job: Any, ask: Ask) -> Done:
    try:
        return Done(number, perform(job, ask))
    except (EOFError, ConnectionError):
        raise
    except FedTempoError as error:
        return Done(number, None, type(error)(str(error)))
    except Exception as error:  # an exception of another library may not survive being sent
        return Done(number, None, RuntimeError(f"{type(error).__name__}: {error}"))


def _asking(pipe: Connection, number: int) -> Ask:
    def ask(question: Any) -> Any:
        pipe.send(Asked(number, question))
        return pipe.recv()

    return ask


def _end_with_parent() -> None:
    """End this worker when its owner was killed: it holds locks on run folders that a new process will need."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
