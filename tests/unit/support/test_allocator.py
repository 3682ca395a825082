"""Freed memory stays with the process while clients train, and goes back afterwards."""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import pytest
import torch

from fedtempo.support import allocator
from fedtempo.support.allocator import freed_memory_kept, keep_freed_memory

GLIBC = platform.libc_ver()[0] == "glibc"


def fresh_pages(times: int) -> int:
    """Pages that the system handed out while a tensor of eight megabytes was made and dropped again and again."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.ones(2**21)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not GLIBC, reason="only glibc is told")
def test_memory_that_was_freed_is_used_again() -> None:
    with freed_memory_kept():
        fresh_pages(20)  # the heap grows to its size
        assert fresh_pages(10) < 2048  # one tensor alone has as many pages as this


def held() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not GLIBC, reason="only glibc is told")
def test_what_is_free_at_the_end_goes_back_to_the_system() -> None:
    with freed_memory_kept():
        tensors = [torch.ones(2**21) for _ in range(20)]
        most, size = held(), 20 * 2**23
        del tensors
        assert most - held() < size / 2
    assert most - held() > size / 2


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Musl:
        """Has neither function, and would fail when it is called."""

    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: Musl())
    assert not keep_freed_memory()
    with freed_memory_kept():
        pass
