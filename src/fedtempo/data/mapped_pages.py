"""Release pages of mapped files, so that a run over a mapped data set stays small.

The kernel maps sixteen pages around each one that is read, and counts them as memory of the process. A run over a
million clients reads little of the file, and would still end up with most of it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.errors import is_count, require

LOOK_AFTER_BYTES = 1 << 20
"""Bytes read between two looks at the process's memory."""
MOST_BYTES = 1 << 28
"""What one process may hold of its mapped files."""
STATM = Path("/proc/self/statm")


class MappedPages:
    """The mapped files among some arrays, and how much of them this process holds."""

    def __init__(self, arrays: Iterable[np.ndarray], most: int = MOST_BYTES) -> None:
        require(is_count(most), "most", "an int >= 1", most)
        found = (_map_behind(array) for array in arrays)
        self._maps = list({id(one): one for one in found if one is not None}.values()) if STATM.exists() else []
        self._most = most
        self._others = _held() if self._maps else 0
        self._read = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays that travel arrive in memory, or are mapped anew.
        return MappedPages, ((), self._most)

    @property
    def mapped(self) -> bool:
        """Whether any of the arrays is a mapped file."""
        return bool(self._maps)

    def note(self, size: int) -> None:
        """Count bytes that were read, and release pages if they have become too many."""
        if not self._maps:
            return
        self._read += size
        if self._read >= LOOK_AFTER_BYTES:
            self._read = 0
            if _held() - self._others > self._most:
                self.release()

    def release(self) -> None:
        """Release all pages. The kernel maps a page again when it is read, mostly from its cache."""
        for one in self._maps:
            one.madvise(mmap.MADV_DONTNEED)


def _held() -> int:
    """Bytes of files and shared memory that the kernel counts for this process."""
    return int(STATM.read_text().split()[2]) * mmap.PAGESIZE


def _map_behind(array: np.ndarray) -> mmap.mmap | None:
    """The map behind an array, if it is only read: releasing a page that was written to would lose the writing."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if isinstance(owner, np.memmap) and owner.mode != "r":
            return None
        owner = owner.base
    return owner if isinstance(owner, mmap.mmap) and not array.flags.writeable else None
