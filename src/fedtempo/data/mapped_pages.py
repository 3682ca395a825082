"""Pages of mapped files that a process has looked at stay in its books; given back, they are the system's to reuse.

The system maps sixteen pages around each one that is read, so a run over a million clients would come to hold most of
the file, though it reads little of it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.errors import is_count, require

LOOK_AFTER_BYTES = 1 << 20
"""How much is read between two looks at the books."""
MOST_BYTES = 1 << 28
"""What one process may hold of its mapped files."""
_BOOKS = Path("/proc/self/statm")


class Residence:
    """The mapped files among some arrays, and how much of them this process holds."""

    def __init__(self, arrays: Iterable[np.ndarray], most: int = MOST_BYTES) -> None:
        require(is_count(most), "most", "an int >= 1", most)
        found = (_map_behind(array) for array in arrays)
        self._maps = list({id(one): one for one in found if one is not None}.values()) if _BOOKS.exists() else []
        self._most = most
        self._others = _held() if self._maps else 0
        self._read = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays that travel arrive in memory, or are mapped anew.
        return Residence, ((), self._most)

    def note(self, size: int) -> None:
        """So many bytes have been read; give pages back if they have become too many."""
        if not self._maps:
            return
        self._read += size
        if self._read >= LOOK_AFTER_BYTES:
            self._read = 0
            if _held() - self._others > self._most:
                self.give_back()

    def give_back(self) -> None:
        """Let go of all pages; what is needed again is mapped again, mostly without a look at the disk."""
        for one in self._maps:
            one.madvise(mmap.MADV_DONTNEED)


def _held() -> int:
    """Bytes of files and shared memory in this process's books."""
    return int(_BOOKS.read_text().split()[2]) * mmap.PAGESIZE


def _map_behind(array: np.ndarray) -> mmap.mmap | None:
    """The map of a file that is only read; to give back pages that were written to would lose what was written."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if isinstance(owner, np.memmap) and owner.mode != "r":
            return None
        owner = owner.base
    return owner if isinstance(owner, mmap.mmap) and not array.flags.writeable else None
