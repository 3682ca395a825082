"""Whether what is about to be made fits into memory: told from counts alone, before any of it is made."""

from __future__ import annotations

import os
import resource
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from fedtempo.errors import ConfigError

_CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_at_most: ContextVar[float | None] = ContextVar("bytes that may be used here; None for the machine's", default=None)


def memory() -> float:
    """Bytes that this process can have: of the machine, its container and its own limit the least."""
    found = [float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    found += [float(limit)] if limit != resource.RLIM_INFINITY else []
    for path in _CGROUPS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        found += [float(text)] if text.isdecimal() else []
    return min(found)


@contextmanager
def with_room(number: float) -> Iterator[None]:
    """Inside, no more than this many bytes may be used."""
    token = _at_most.set(number)
    try:
        yield
    finally:
        _at_most.reset(token)


def require_room(needed: float, what: str) -> None:
    """Refuse what would not fit into memory, with both numbers; warn if it takes more than half."""
    allowed = _at_most.get()
    there = memory() if allowed is None else min(allowed, memory())
    if needed > there:
        raise ConfigError(f"{what} must fit into memory, {gigabytes(there)} here. Got about {gigabytes(needed)}.")
    if needed > there / 2 and allowed is None:
        warnings.warn(
            f"{what} takes about {gigabytes(needed)} of {gigabytes(there)} of memory", UserWarning, stacklevel=3
        )


def gigabytes(number: float) -> str:
    """Bytes as people read them.

    >>> gigabytes(3 * 2**30), gigabytes(5e20)
    ('3 GB', '466,000,000,000 GB')
    """
    size = number / 2**30
    return f"{float(f'{size:.3g}'):,g} GB" if size < 1000 else f"{int(float(f'{size:.3g}')):,} GB"
