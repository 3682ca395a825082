"""Randomness that depends on the position in a run (seed, round, client, purpose), never on the order of draws.

Every random number is a function of `(seed, path)`: the path says round, client and purpose. There is
no generator state to save and no order to keep, so a resumed run, another backend or another
cohort order draws the same numbers.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch

Int64 = TypeVar("Int64", np.ndarray, torch.Tensor)

_ODD_CONSTANTS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)  # SplitMix64's, as signed 64-bit numbers
_GOLDEN = -0x61C8864680B583EB
CACHED_SEEDS = 64
"""Seeds that are kept: all clients of a round ask for the same few."""


@lru_cache(CACHED_SEEDS, typed=True)
def seed_for(seed: int, *path: str | int) -> int:
    """A 63-bit seed that depends only on `(seed, path)`.

    >>> seed_for(0, "batches", 3) == seed_for(0, "batches", 3) != seed_for(0, "batches", 4)
    True
    """
    digest = hashlib.sha256(repr((int(seed), *path)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """A numpy generator for one purpose, such as choosing a round's cohort."""
    return np.random.Generator(np.random.PCG64(seed_for(seed, *path)))


def scramble(counters: Int64) -> Int64:
    """SplitMix64's finaliser on signed 64-bit integers, the same for numpy and torch.

    A counter-based generator: any number of clients draw at once, each from its own counters, and
    the numbers do not depend on who else draws.
    """
    x = counters
    for shift, constant in zip((30, 27), _ODD_CONSTANTS, strict=True):
        x = (x ^ _logical_shift(x, shift)) * constant
    bits: Int64 = x ^ _logical_shift(x, 31)
    return bits


def _logical_shift(x: Int64, by: int) -> Int64:
    return (x >> by) & ((1 << (64 - by)) - 1)


def client_keys(seed: int, clients: np.ndarray, *path: str | int) -> np.ndarray:
    """One 64-bit key per client for the purpose `path`, for any number of clients at once."""
    base = np.int64(seed_for(seed, *path))
    keys: np.ndarray = scramble(scramble(clients.astype(np.int64) * np.int64(_GOLDEN)) ^ base)
    return keys


def random_bits(keys: np.ndarray, count: int, start: int = 0) -> np.ndarray:
    """`count` 64-bit numbers per key, from counter `start` on; shape (keys, count)."""
    counters = np.arange(start + 1, start + count + 1, dtype=np.int64) * np.int64(_GOLDEN)
    bits: np.ndarray = scramble(keys[:, None] + counters[None, :])
    return bits


def uniform(key: torch.Tensor, shape: torch.Size, stream: int) -> torch.Tensor:
    """Uniform numbers in [0, 1) in float64 from a scalar key; usable under `vmap` with a key per client."""
    count = shape.numel()
    counters = torch.arange(1, count + 1, dtype=torch.int64, device=key.device) * _GOLDEN
    bits = scramble(counters + scramble(key + stream))
    return (_logical_shift(bits, 11).to(torch.float64) * 2.0**-53).reshape(shape)


def row_keys(keys: torch.Tensor, rows: int) -> torch.Tensor:
    """A key for each of a client's rows, whatever the number of rows; shape (clients, rows)."""
    if keys.device.type == "cpu":  # numpy takes a fraction of torch's time for so few numbers
        return torch.from_numpy(random_bits(keys.numpy(), rows))
    counters = torch.arange(1, rows + 1, dtype=torch.int64, device=keys.device) * _GOLDEN
    return scramble(keys[:, None] + counters)


def uniform_rows(keys: torch.Tensor, count: int) -> torch.Tensor:
    """`count` uniform numbers in [0, 1) in float64 for each key; shape (keys, count)."""
    return _logical_shift(row_keys(keys, count), 11).to(torch.float64) * 2.0**-53


_GLOBAL_GENERATORS = threading.RLock()
"""Held by the thread that has seeded the global generators: a live page that builds its model while a run builds its
own would take numbers from the run's, and each would put back the other's state."""
# A process that is forked while another thread holds the lock would wait for that thread, which it does not have.
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_GLOBAL_GENERATORS.acquire,
        after_in_parent=_GLOBAL_GENERATORS.release,
        after_in_child=_GLOBAL_GENERATORS.release,
    )


@contextmanager
def torch_kept() -> Iterator[None]:
    """Whatever is drawn in here, torch's own generator is left as it was. Other threads wait for their turn."""
    # No devices: to save a GPU's generator would start the GPU in every process.
    with _GLOBAL_GENERATORS, torch.random.fork_rng(devices=[]):
        yield


@contextmanager
def generators_kept() -> Iterator[None]:
    """Whatever code of others draws in here, torch's, numpy's and Python's own generators are left as they were."""
    with torch_kept():
        numpy, python = np.random.get_state(), random.getstate()
        try:
            yield
        finally:
            np.random.set_state(numpy)
            random.setstate(python)


def seed_generators(seed: int) -> None:
    """Start torch's, numpy's and Python's own generators from a seed, for code of others that draws from them."""
    number = seed & (2**63 - 1)
    if not _has_accelerator():
        # torch.manual_seed would store a stack trace for the accelerator, which this build of torch does not have. That
        # takes four hundred times as long, and transforms of single images are seeded for every row.
        torch.default_generator.manual_seed(number)
    else:
        torch.manual_seed(number)
    np.random.seed(seed & (2**32 - 1))
    random.seed(seed)


def _has_accelerator() -> bool:
    """Whether torch has an accelerator of its own to seed."""
    try:
        return torch.accelerator.current_accelerator() is not None
    except RuntimeError:  # torch 2.6 that was built for an accelerator, on a machine that has none
        return False


def states_of_generators() -> tuple[object, ...]:
    """What torch's, numpy's and Python's own generators would draw next, as values to compare."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    return torch.get_rng_state().numpy().tobytes(), kind, np.asarray(keys).tobytes(), tuple(rest), random.getstate()
