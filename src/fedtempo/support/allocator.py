"""What the C library does with memory that torch frees.

A local step frees megabytes that the next step needs again. By default glibc gives large pieces back to the system, and
fresh pages are slow to get: a tenth of a round of a small convolutional network. So while clients train, freed memory
is kept, and returned when training ends. Other C libraries are left as they are.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's `mallopt`."""
KEPT_BYTES = 2**30
"""Freed memory above which the C library gives some back."""
LARGEST_PIECE = 2**25
"""Pieces above this size come from the system each time: the most that glibc allows."""


def keep_freed_memory() -> bool:
    """Tell glibc to keep what is freed, up to a gigabyte; whether there was a glibc to tell."""
    # Only glibc has all three functions: musl has neither, macOS and Windows have others.
    with contextlib.suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        if not (hasattr(library, "gnu_get_libc_version") and hasattr(library, "malloc_trim")):
            return False
        return bool(library.mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and library.mallopt(_MMAP_THRESHOLD, LARGEST_PIECE))
    return False


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Freed memory is kept inside, and what is free at the end goes back to the system."""
    keeps = keep_freed_memory()
    try:
        yield
    finally:
        if keeps:
            ctypes.CDLL(None).malloc_trim(0)
