"""A framework in a process of its own that does a round when asked, and stands still while others have their turn."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import ROOT, tree

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTHONUNBUFFERED": "1",
}


GRACE_SECONDS = 2.0
"""What a framework gets to end by itself, and again after it was told to."""


class PeerFailedError(Exception):
    """A framework could not be installed, started or run; the text says why."""


class Contender(Iterator[None]):
    """Rounds of a framework, one `next` each. After a failure `next` does nothing and `failure` says why.

    All its processes are stopped between turns, because some poll while they wait and would slow the others down.
    """

    def __init__(self, command: Sequence[str], log: Path, patience: float) -> None:
        self._log, self._patience = log, patience
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.failure: str | None = None
        self.cohorts: list[list[int]] = []
        self._allowance, self._least = float("inf"), 0
        self.taken, self._spent = 0, 0.0
        started = time.perf_counter()
        self.about = self._attempt(None) or {}
        self.start_up = time.perf_counter() - started

    def __next__(self) -> None:
        if self.taken >= self._least and self._spent > self._allowance:
            return
        started = time.perf_counter()
        answer = self._attempt("round")
        if answer is not None:
            self.cohorts.append(answer["cohort"])
            self.taken += 1
            self._spent += time.perf_counter() - started

    def allow(self, seconds: float, least: int) -> None:
        """From here on take as many rounds as fit, but at least so many; turns after that are left out."""
        self._allowance, self._least = seconds, least
        self.taken, self._spent = 0, 0.0

    def weights(self, place: Path) -> list[np.ndarray] | None:
        """The shared weights after the rounds so far."""
        if self._attempt(f"weights {place}") is None:
            return None
        with np.load(place) as saved:
            return [saved[name] for name in saved.files]

    def give_up(self, reason: str) -> None:
        """Take no part any more."""
        self.failure = reason
        self.close()

    def close(self) -> None:
        """End every process of the framework."""
        members = tree(self._process.pid)
        _signal(members, signal.SIGCONT)
        if self._process.stdin:
            # What a framework that has ended did not read is still to be written when the pipe is closed.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + GRACE_SECONDS
            while time.monotonic() < deadline and any(_alive(member) for member in members):
                self._process.poll()
                time.sleep(0.05)
            _signal([member for member in members if _alive(member)], number)
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def _attempt(self, order: str | None) -> dict[str, Any] | None:
        """The answer to an order; a framework that fails is ended and asked no more."""
        if self.failure is not None:
            return None
        try:
            return self._exchange(order)
        except PeerFailedError as error:
            self.give_up(str(error))
            return None

    def _exchange(self, order: str | None) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        if order is not None:
            _signal(tree(self._process.pid), signal.SIGCONT)
            try:
                self._process.stdin.write(f"{order}\n".encode())
                self._process.stdin.flush()
            except BrokenPipeError as error:
                raise PeerFailedError(f"ended: {self._last_words()}") from error
        waiting, _, _ = select.select([self._process.stdout], [], [], self._patience)
        if not waiting:
            what = "not ready" if order is None else "no answer"
            raise PeerFailedError(f"{what} within {self._patience:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise PeerFailedError(f"ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise PeerFailedError(answer["failed"])
        _signal(tree(self._process.pid), signal.SIGSTOP)
        return answer

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:200] if lines else "without a word"


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _signal(members: Sequence[int], number: signal.Signals) -> None:
    for member in members:
        try:
            os.kill(member, number)
        except ProcessLookupError:
            continue
