"""The one driver of many runs: what is done stays, the rest is trained; a failure ends no other run."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Protocol

from fedtempo.config.own_code import granting
from fedtempo.errors import FedTempoError
from fedtempo.training.pool import Ask, Done, Perform, Pool, WorkerDiedError

Observe = Callable[[int, int, str], None]
"""Is told how many runs are done, of how many, and what the last one was."""


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
    """Perform the jobs that are not done, several at a time if there are several workers. Returns why some failed.

    `take` gets what each job that is performed now returns.

    What can be pickled goes to fresh processes. Functions of the user's own may not be picklable: then workers are
    copies of this process, where the system can copy processes, and else the jobs follow each other.
    """
    waiting = [job for job in jobs if not job.done()]
    done, failed = len(jobs) - len(waiting), list[FedTempoError]()
    if jobs:
        observe(done, len(jobs), f"{what}: done before" if done else f"{what}: started")

    def ended(job: PendingRun, returned: object, error: Exception | None) -> None:
        nonlocal done
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

    can_fork = "fork" in multiprocessing.get_all_start_methods()
    if min(workers, len(waiting)) < 2 or not (can_be_sent or can_fork):
        for job in waiting:
            returned, error = None, None
            try:
                returned = job.perform()
            except FedTempoError as failure:
                error = failure
            ended(job, returned, error)
        return failed
    perform: Perform = _sent if can_be_sent else lambda number, ask: waiting[number].perform()
    with Pool(granting(perform), workers, "spawn" if can_be_sent else "fork") as pool:
        for message in pool.perform(enumerate(waiting if can_be_sent else range(len(waiting)))):
            assert isinstance(message, Done)  # these jobs ask nothing
            ended(waiting[message.number], message.result, message.error)
    return failed


def _sent(job: PendingRun, ask: Ask) -> object:
    return job.perform()
