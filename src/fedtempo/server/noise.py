"""Gaussian noise that nobody can predict: a key from the operating system, expanded by a cryptographic hash.

A run of a private mean draws one key of 256 bits. SHAKE256 of the key, the round and the sum turns it into as many bits
as the round needs. Ordinary generators are not enough: an attacker who knows most of the clients' data can compute the
noise on many coordinates, and enough outputs of a Mersenne Twister or a PCG reveal all others.

The sum is part of what is hashed, as in deterministic signatures. A round that is computed again from the same uploads,
after a crash, has the same noise and tells nothing new; a round that is computed again from other uploads has fresh
noise. Noise by round alone would cancel in the difference of the two.

Floating-point numbers are not real numbers. Mironov (2012) showed that the low bits of a noised number can tell which
number was noised, and others have since shown it for Gaussian samplers. So the sum and the noise are both rounded to
one grid, a billionth of the noise's deviation wide, and added there without rounding: every sum can become every point
of the grid. Rounding noise on a grid that the sum lies on is the same as rounding the noised sum, so nothing is lost.
Each draw is also half the sum of four normal draws, the remedy of Holohan and Braghin (2021) that Opacus's secure mode
uses: which values a single sampler can reach is then beyond search. The time that a round takes is not hidden.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedtempo.params import Params

KEY_BYTES = 32
_GRID_BITS = 30
"""The deviation is between 2^30 and 2^31 steps of the grid."""
_CHUNK = 1 << 16
"""Coordinates that are drawn together; each takes four normal numbers of eight bytes."""


@dataclass(frozen=True)
class Secret:
    """The key of a private run. It is kept in the server's store and nowhere else; it does not print."""

    key: bytes = field(repr=False)
    insecure: bool = False
    """Whether the key was derived from a `noise_seed`, for tests; the noise then depends on seed and round alone."""

    @property
    def cohort_seed(self) -> int:
        """The seed of the cohorts: who takes part is as secret as the noise, or sampling amplifies nothing."""
        return int.from_bytes(_stream(self.key, b"cohort", length=KEY_BYTES))


def fresh_secret() -> Secret:
    """A key from the operating system's secure source."""
    return Secret(secrets.token_bytes(KEY_BYTES))


def insecure_secret(noise_seed: int) -> Secret:
    """A key that anybody who knows the seed can make: for tests."""
    return Secret(hashlib.sha256(f"insecure noise seed {noise_seed}".encode()).digest(), insecure=True)


def grid_of(deviation: float) -> float:
    """The width of the grid for noise of this deviation: a power of two."""
    return math.ldexp(1.0, math.frexp(deviation)[1] - 1 - _GRID_BITS)


def noised(sums: Mapping[str, Tensor], deviation: float, secret: Secret, round_number: int) -> Params:
    """Sums in float64, rounded to the grid, plus Gaussian noise on the grid."""
    grid = grid_of(deviation)
    # In units of the grid all numbers are whole, so adding them is exact.
    steps = {name: torch.round(total.to("cpu", torch.float64) / grid) for name, total in sums.items()}
    occasion = round_number.to_bytes(8, "big") + (b"" if secret.insecure else _digest(steps))
    result = {}
    for name, total in steps.items():
        draws = normal(secret.key, occasion + name.encode(), total.numel()) * (deviation / grid)
        noise = torch.from_numpy(np.rint(draws)).reshape(total.shape)
        result[name] = ((total + noise) * grid).to(sums[name].device)
    return result


def normal(key: bytes, occasion: bytes, count: int) -> np.ndarray:
    """`count` normal numbers from a key, by the transform of Box and Muller on 64-bit uniform numbers."""
    draws = np.empty(count)
    for start in range(0, count, _CHUNK):
        here = min(_CHUNK, count - start)
        raw = _stream(key, b"noise", occasion, start.to_bytes(8, "big"), length=32 * here)
        uniform = (np.frombuffer(raw, dtype="<u8").astype(np.float64) + 0.5) * 2.0**-64  # never 0, so its log is finite
        radius, angle = np.sqrt(-2.0 * np.log(uniform[: 2 * here])), 2.0 * math.pi * uniform[2 * here :]
        four = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)]).reshape(4, here)
        draws[start : start + here] = four.sum(axis=0) / 2.0
    return draws


def _stream(*parts: bytes, length: int) -> bytes:
    """Bytes that depend on all parts and on where one ends and the next begins."""
    state = hashlib.shake_256()
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest(length)


def _digest(tensors: Mapping[str, Tensor]) -> bytes:
    state = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        state.update(f"{name} {tuple(tensor.shape)}\n".encode())
        state.update(tensor.contiguous().numpy().tobytes())
    return state.digest()
