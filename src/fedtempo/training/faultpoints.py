"""Fault points: named places where a test can make the program die, run out of disk or be interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_hook: ContextVar[Callable[[str], None] | None] = ContextVar("fault hook", default=None)


def fault(point: str) -> None:
    """Does nothing, unless a test has installed a hook."""
    hook = _hook.get()
    if hook is not None:
        hook(point)


@contextmanager
def faults(hook: Callable[[str], None]) -> Iterator[None]:
    """Call `hook` with the name of every fault point that is passed."""
    token = _hook.set(hook)
    try:
        yield
    finally:
        _hook.reset(token)
