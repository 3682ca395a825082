"""Processors and threads: how many this process may use, and how many torch uses while runs are under way."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _Threads:
    """How many runs are under way, and torch's number of threads before the first of them."""

    def __init__(self) -> None:
        self._runs, self._before, self._lock = 0, 1, threading.Lock()

    def enter(self) -> None:
        with self._lock:
            if not self._runs:
                self._before = torch.get_num_threads()
            self._runs += 1
            torch.set_num_threads(1)

    def leave(self) -> None:
        with self._lock:
            self._runs -= 1
            if not self._runs:
                torch.set_num_threads(self._before)


_threads = _Threads()


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread while training: sums inside a layer keep their order, and workers do not compete for cores.

    Several runs may take turns in one process. The first one in notes the number of threads, the last one out puts it
    back.
    """
    _threads.enter()
    try:
        yield
    finally:
        _threads.leave()


def usable_processors() -> int:
    """The processors that this process may use: a container or a batch system may leave it fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
