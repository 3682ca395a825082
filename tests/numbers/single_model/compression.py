"""Compressors in plain numpy, tensor by tensor, written from their formulas; and SplitMix64 for their draws.

Only the keys come from the library: they say where the draws of a tensor begin.
"""

from collections.abc import Callable
from math import ceil, log2

import numpy as np

from fedtempo.client.compression.packing import ALL_CLIENTS, keys_of

Vector = np.ndarray
TENSORS = {"weight": slice(0, 6), "bias": slice(6, 9)}
"""Where the tensors of the softmax problem stand in its vector."""


def splitmix(x: Vector) -> Vector:
    """Steele, Lea and Flood (2014): two xor-shift-multiplications and a last xor-shift, modulo 2^64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def counters(count: int) -> Vector:
    return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def uniforms(key: int, count: int) -> Vector:
    start = splitmix(np.array([key], dtype=np.uint64))
    return (splitmix(counters(count) + start) >> np.uint64(11)) / 2.0**53


def top_k(fraction: float):
    def compress(p: Vector, key: int) -> Vector:
        k = max(1, ceil(fraction * len(p)))
        kept = sorted(range(len(p)), key=lambda j: (-abs(p[j]), j))[:k]
        return np.array([p[j] if j in kept else 0.0 for j in range(len(p))])

    return compress


def random_k(fraction: float, scaled: bool):
    def compress(p: Vector, key: int) -> Vector:
        k = max(1, ceil(fraction * len(p)))
        order = np.argsort(splitmix(counters(len(p)) + np.uint64(key)).view(np.int64))
        kept = np.isin(np.arange(len(p)), order[:k])
        return np.where(kept, p, 0.0) * (len(p) / k if scaled else 1.0)

    return compress


def qsgd(s: int, damped: bool = False):
    """With a memory divided by 1 + w, w = min(d / s^2, sqrt(d) / s)."""

    def compress(p: Vector, key: int) -> Vector:
        norm = np.sqrt((p * p).sum())
        a = s * np.abs(p) / norm
        w = min(len(p) / s**2, np.sqrt(len(p)) / s) if damped else 0.0
        return norm * np.sign(p) * (np.floor(a) + (uniforms(key, len(p)) < a - np.floor(a))) / s / (1 + w)

    return compress


def rounding(bits: int, damped: bool = False):
    """With a memory divided by 1 + d / (2 (2^b - 1)^2)."""

    def compress(p: Vector, key: int) -> Vector:
        grid = np.linspace(p.min(), p.max(), 2**bits)
        width = grid[1] - grid[0]
        below = np.clip(np.floor((p - p.min()) / width + 1e-12).astype(int), 0, 2**bits - 1)
        above = np.minimum(below + 1, 2**bits - 1)
        rounded = np.where(uniforms(key, len(p)) < (p - grid[below]) / width, grid[above], grid[below])
        return rounded / (1 + (len(p) / (2 * (2**bits - 1) ** 2) if damped else 0.0))

    return compress


def sign(p: Vector, key: int) -> Vector:
    return np.abs(p).mean() * np.where(p < 0, -1.0, 1.0)


def largest_then_signs(fraction: float):
    """A chain: the k largest, then signs of those k."""

    def compress(p: Vector, key: int) -> Vector:
        kept = top_k(fraction)(p, key) != 0
        return np.where(kept, np.abs(p[kept]).mean() * np.sign(p), 0.0)

    return compress


class Compression:
    """What a client makes of what it wants to send, with EF14's e_i or EF21's d_i, zero at first."""

    def __init__(self, compress, feedback="none", seed=0, group="delta"):
        self.compress, self.feedback, self.seed, self.group = compress, feedback, seed, group
        self.memory: dict[int, Vector] = {}

    def __call__(self, t: int, i: int, wanted: Vector) -> Vector:
        memory = self.memory.get(i, np.zeros_like(wanted))
        p = {"none": wanted, "ef14": wanted + memory, "ef21": wanted - memory}[self.feedback]
        key_of = keys_of(self.seed, t, i, self.group)
        sent = np.concatenate([self.compress(p[where], key_of(name)) for name, where in TENSORS.items()])
        self.memory[i] = p - sent if self.feedback == "ef14" else memory + sent
        return sent

    def of(self, client: Callable) -> Callable:
        """A client that sends what is left of its displacement."""
        return lambda t, i, x: self(t, i, client(t, i, x))


def downloaded(client: Callable, compress, seed=0) -> Callable:
    """A client that trains from C(x); the draw is the same for all clients of a round."""
    down = Compression(compress, seed=seed, group="shared")
    return lambda t, i, x: client(t, i, down(t, ALL_CLIENTS, x))


def bits_of_places(k: int, d: int) -> int:
    """Bytes of k places among d: a number each, or a bit for each of the d."""
    return min(ceil(k * ceil(log2(d)) / 8), ceil(d / 8))
