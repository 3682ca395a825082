"""The pool of whole runs: every job's result, question and death comes back under its number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedtempo.errors import ConfigError
from fedtempo.training.pool import Ask, Asked, Done, Perform, Pool, WorkerDiedError, runs_at_once
from tests.slow import slow_but
from tests.waiting import allowed, until

METHODS = ("fork", "spawn")


def squared(job: Any, ask: Ask) -> Any:
    """Picklable, as spawning needs it."""
    if job == "ask":
        return ask("how much?") * 2
    if job == "wrong":
        raise ConfigError("job must be a number.")
    if job == "broken":
        raise KeyError("what")
    if job == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return job * job


def everything(pool: Pool, jobs: list[Any]) -> dict[int, Done]:
    ended = {}
    for message in pool.perform(enumerate(jobs)):
        if isinstance(message, Asked):
            assert message.question == "how much?"
            pool.answer(message.number, 21)
        else:
            ended[message.number] = message
    return ended


@pytest.mark.parametrize(
    "method", slow_but(["fork"], METHODS, "four interpreters; test_start spawns two for a run every time")
)
def test_results_questions_errors_and_deaths(method: Any) -> None:
    with Pool(squared, 2, method) as pool:
        ended = everything(pool, [3, "ask", "wrong", "broken", "dies", 5])
    assert [ended[number].result for number in (0, 1, 5)] == [9, 42, 25]
    assert isinstance(ended[2].error, ConfigError) and str(ended[2].error) == "job must be a number."
    assert str(ended[3].error) == "KeyError: 'what'"
    assert isinstance(ended[4].error, WorkerDiedError) and "exit code -9" in str(ended[4].error)


def test_a_forked_worker_performs_what_cannot_be_pickled() -> None:
    perform: Perform = lambda job, ask: job + 1  # noqa: E731
    with Pool(perform, 2, "fork") as pool:
        assert {number: done.result for number, done in everything(pool, [1, 2, 3]).items()} == {0: 2, 1: 3, 2: 4}


def test_leaving_the_block_ends_busy_workers() -> None:
    pids: list[int] = []
    with Pool(lambda job, ask: (ask(os.getpid()), signal.pause()), 2, "fork") as pool:
        for number in range(2):
            pool.start(number, None)
        while len(pids) < 2:
            for message in pool.messages():
                assert isinstance(message, Asked)
                pids.append(message.question)
                pool.answer(message.number, None)
        began = time.monotonic()
    assert time.monotonic() - began < allowed(4)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_workers_end_with_a_killed_owner(tmp_path: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
from fedtempo.training.pool import Pool
def perform(job, ask):
    Path({str(tmp_path)!r}, "worker").write_text(str(os.getpid()))
    signal.pause()
with Pool(perform, 1, "fork") as pool:
    pool.start(0, None)
    for message in pool.messages():
        pass
"""
    owner = subprocess.Popen([sys.executable, "-c", script])
    note = tmp_path / "worker"
    assert until(lambda: note.exists() and note.read_text())
    owner.kill()
    owner.wait()
    assert until(lambda: not alive(int(note.read_text())))


def alive(pid: int) -> bool:
    """A process that has ended may be listed until somebody asks for its exit code."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("asked", "processors", "runs", "rounds", "workers", "said"),
    [
        (3, 2, 1, 1, 3, "3 whole runs at a time, each in one process (as asked for)"),
        (None, 4, 8, 800, 4, "4 whole runs at a time, each in one process (8 runs for 4 processors)"),
        (None, 4, 3, 800, 1, "clients of a run over the processors (3 runs for 4 processors)"),
        (None, 4, 8, 99, 1, "99 rounds in all, too few to start processes for"),
        (None, 1, 8, 800, 1, "there is one processor"),
    ],
)
def test_whole_runs_share_the_processors_where_there_are_enough_of_them(
    asked: int | None,
    processors: int,
    runs: int,
    rounds: int,
    workers: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(processors)))
    chosen = runs_at_once(asked, runs, rounds)
    assert chosen.workers == workers and said in str(chosen)
