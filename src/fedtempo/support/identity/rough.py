"""The identity of a value up to the last bits of its numbers, for a comparison across kinds of processor.

A hash of everything but the numbers in floating-point arrays, and two sums over those: one with random weights, which
almost every change moves, and the norm, which says how far rounding may move the first.
"""

from __future__ import annotations

import math
import random

import numpy as np

from fedtempo.support.identity.walk import walked

TOLERANCE = 1e-5
"""How far the sums may be apart, as a part of the norm: first weights may come from a decomposition in float32."""
PIECE = 2**20
"""Numbers that are weighted at a time."""
DEVIATION = 2**16 / math.sqrt(12)
"""Of the weights, which are random integers of 16 bits."""


def rough_identity_of(value: object, name: str = "value") -> str:
    """What the value is, but for the last bits of its arrays. Raises `Unstable` where that cannot be said.

    >>> one, other = (rough_identity_of(np.array([0.1, shift])) for shift in (0.3, 0.1 + 0.2))
    >>> one == other, equal_but_for_rounding(one, other)
    (False, True)
    >>> equal_but_for_rounding(one, rough_identity_of(np.array([0.1, 0.31])))
    False
    """
    sums = _Sums()
    digest = walked(value, name, sums.add)
    return f"{digest[:32]} {sums.weighted!r} {math.sqrt(sums.squares)!r}"


def equal_but_for_rounding(one: str, other: str) -> bool:
    """Whether two rough identities are those of values that rounding alone can have set apart."""
    try:
        (hash_one, *first), (hash_other, *second) = one.split(), other.split()
        (sum_one, norm_one), (sum_other, norm_other) = map(float, first), map(float, second)
    except ValueError:  # a record of somebody else's
        return False
    gap = max(abs(sum_one - sum_other), abs(norm_one - norm_other))
    return hash_one == hash_other and gap <= TOLERANCE * max(norm_one, norm_other)


class _Sums:
    """The sums over all arrays of a value, in the order in which they are met."""

    def __init__(self) -> None:
        self.weighted, self.squares = 0.0, 0.0
        self._random = random.Random(0)  # noqa: S311 - every machine draws the same

    def add(self, array: np.ndarray) -> None:
        flat = array.reshape(-1)
        for start in range(0, len(flat), PIECE):
            piece = np.nan_to_num(flat[start : start + PIECE].astype(np.float64))
            weights = np.frombuffer(self._random.randbytes(2 * len(piece)), dtype="<i2")
            self.weighted += float(piece @ weights.astype(np.float64)) / DEVIATION
            self.squares += float(piece @ piece)
