"""The one driver of many runs: what is done stays, the rest is trained; a failure ends no other run."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from fedtempo.config.own_code import granting
from fedtempo.errors import FedTempoError
from fedtempo.training.pool import Ask, Asked, Perform, Pool, WorkerDiedError

Observe = Callable[[int, int, str], None]
"""Is told how many runs are done, of how many, and what the last one was."""
J = TypeVar("J")


class PendingRun(Protocol):
    """One run that leaves what it found in files, so that any process may perform it."""

    @property
    def name(self) -> str:
        """For people."""

    def done(self) -> bool:
        """Whether it needs no more training."""

    def perform(self) -> object:
        """Train to the end, on from the last stored round if there is one."""


def perform_all(
    jobs: Sequence[PendingRun],
    workers: int,
    can_be_sent: bool,
    observe: Observe,
    what: str = "runs",
    take: Callable[[PendingRun, object], None] = lambda job, returned: None,
) -> list[FedTempoError]:
    """Perform the jobs that are not done. Returns why some failed; `take` gets what the others return."""
    waiting = [job for job in jobs if not job.done()]
    done, failed = len(jobs) - len(waiting), list[FedTempoError]()
    if jobs:
        observe(done, len(jobs), f"{what}: done before" if done else f"{what}: started")
    for job, returned, error in each_ended(waiting, min(workers, len(waiting)), can_be_sent, _performed):
        if error is None:
            take(job, returned)
        else:
            again = ". Finished runs are kept: run the command again" if isinstance(error, WorkerDiedError) else ""
            named = type(error)(f"{job.name}: {str(error).removesuffix('.') if again else error}{again}")
            if not isinstance(named, FedTempoError):
                raise named
            failed.append(named)
        done += 1
        observe(done, len(jobs), job.name)
    return failed


def each_ended(
    jobs: Iterable[J],
    workers: int,
    can_be_sent: bool,
    perform: Callable[[J, Ask], object],
    answer: Callable[[J, Any], object] = lambda job, question: None,
) -> Iterator[tuple[J, Any, Exception | None]]:
    """Perform the jobs, several at a time if there are several workers: each as it ends, what it returned, its error.

    The next job is asked for when a worker is free, so it may depend on how earlier ones ended. `answer` answers what a
    job asks meanwhile. What can be pickled goes to fresh processes. Functions of the user's own may not be picklable:
    then workers are copies of this process, where the system can copy processes, and else the jobs follow each other.
    """
    if workers < 2 or not (can_be_sent or "fork" in multiprocessing.get_all_start_methods()):
        for job in jobs:
            yield _ended_here(job, perform, answer)
        return
    given: dict[int, J] = {}
    if not can_be_sent:
        given = dict(enumerate(jobs))

    def sent() -> Iterator[tuple[int, object]]:
        if given:  # a copy of this process knows the jobs by their numbers
            yield from ((number, number) for number in list(given))
            return
        for number, job in enumerate(jobs):
            given[number] = job
            yield number, job

    work: Perform = perform if can_be_sent else lambda number, ask: perform(given[number], ask)
    with Pool(granting(work), workers, "spawn" if can_be_sent else "fork") as pool:
        for message in pool.perform(sent()):
            job = given[message.number]
            if isinstance(message, Asked):
                pool.answer(message.number, answer(job, message.question))
            else:
                yield job, message.result, message.error


def _ended_here(
    job: J, perform: Callable[[J, Ask], object], answer: Callable[[J, Any], object]
) -> tuple[J, Any, Exception | None]:
    try:
        return job, perform(job, lambda question: answer(job, question)), None
    except FedTempoError as error:
        return job, None, error


def _performed(job: PendingRun, ask: Ask) -> object:
    return job.perform()
