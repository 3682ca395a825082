"""Exact sums: their bits depend neither on the order nor on the grouping of the terms.

Floating-point addition rounds, so (a + b) + c and a + (b + c) may differ in the last bit. Workers add clients up in
whatever order they finish, and a run must not depend on that. Therefore every number is split into two parts that add
without rounding: a multiple of 2^-24, and the remainder rounded to a multiple of 2^-58. The parts are summed separately
in float64. Multiples of one power of two add exactly as long as the sum fits into float64's 53 bits: here, while a sum
stays below 2^29 in size and has fewer than a million terms. So partial sums can be made anywhere, and leaving a client
out gives the bits of a run without it. Beyond that range a sum is an ordinary float64 sum: as accurate as any, but
dependent on the order.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

_COARSE = 1.5 * 2.0**28
_FINE = 1.5 * 2.0**-6
"""Adding one of these and subtracting it again rounds to the multiples named above. A float64 has 53 bits: next to 2^28
its last bit is worth 2^-24, so smaller bits are rounded away. The factor 1.5 keeps the exponent the same when a
negative number is added."""
LAST_BIT = 2.0**-58
"""The smaller of the two multiples: an exact sum moves each of its terms by up to half of it."""
_CHUNK = 1 << 15
"""Numbers per piece: small enough that all passes over a piece stay in the processor's cache."""

_NUMPY_TYPES = (torch.float32, torch.float64)
"""Types to which numpy and torch round alike: torch rounds to float16 by way of float32."""

_QUIET = np.errstate(invalid="ignore", over="ignore")
"""Non-finite inputs propagate into the sum, where they are looked for; numpy need not warn about them here."""

Number = TypeVar("Number", np.ndarray, Tensor)


class Exact(NamedTuple):
    """A sum of tensors in two parts; both are changed in place by `add`."""

    high: Tensor
    low: Tensor

    @property
    def value(self) -> Tensor:
        """The sum, rounded once."""
        return self.high + self.low

    @_QUIET
    def add(self, tensor: Tensor, weight: float = 1.0) -> None:
        """Add a tensor times a weight."""
        # On a GPU numpy is no option, so torch does the same arithmetic in one pass.
        if tensor.device.type != "cpu":
            self.merge(sum_of_rows(tensor.to(torch.float64).unsqueeze(0) * weight))
            return
        wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor  # exact, and numpy has no bfloat16
        # numpy flattens in a tenth of torch's time, which counts where tensors are small.
        high, low, values = (t.numpy().reshape(-1) for t in (self.high, self.low, wide.detach()))
        # `high` and `low` are views: adding to a slice of them changes the sum itself.
        for start in range(0, values.size, _CHUNK):
            here = slice(start, start + _CHUNK)
            _add_chunk(high[here], low[here], values[here], weight)

    @_QUIET
    def mean(self, count: float, dtype: torch.dtype) -> Tensor:
        """The sum, rounded once, over a count."""
        if self.high.device.type != "cpu" or dtype not in _NUMPY_TYPES:
            return (self.value / count).to(dtype)
        # Piece by piece nothing is written that is as large as the model in float64. Such memory would come fresh from
        # the system, which takes longer than the arithmetic.
        result = torch.empty(self.high.shape, dtype=dtype)
        high, low, rounded = (t.numpy().reshape(-1) for t in (self.high, self.low, result))
        for start in range(0, high.size, _CHUNK):
            here = slice(start, start + _CHUNK)
            piece = high[here] + low[here]
            piece /= count
            rounded[here] = piece
        return result

    def merge(self, other: Exact) -> None:
        """Add another sum."""
        self.high.add_(other.high)
        self.low.add_(other.low)


class ExactNumber(NamedTuple):
    """A sum of single numbers in two parts."""

    high: float = 0.0
    low: float = 0.0

    @property
    def value(self) -> float:
        """The sum, rounded once."""
        return self.high + self.low

    @_QUIET
    def plus(self, numbers: np.ndarray) -> ExactNumber:
        """The sum with these numbers too."""
        high, low = _parts(numbers)
        return ExactNumber(self.high + float(high.sum()), self.low + float(low.sum()))

    def merged(self, other: ExactNumber) -> ExactNumber:
        """This sum and another one together."""
        return ExactNumber(self.high + other.high, self.low + other.low)


def empty_sum(like: Tensor) -> Exact:
    """An empty sum of tensors of this shape, laid out row by row whatever the layout of what will be added."""
    shape = (2, *like.shape)
    if like.device.type != "cpu":
        return Exact(*torch.zeros(shape, dtype=torch.float64, device=like.device))
    # numpy asks the system for huge pages, torch does not: a quarter of the time for a sum of millions of numbers.
    return Exact(*torch.from_numpy(np.zeros(shape)))


def sum_of_rows(tensor: Tensor, factors: Tensor | None = None) -> Exact:
    """The sum over the first dimension, each row times its factor."""
    # The product with the weight is rounded once, in float64, and only then split. So `Exact.add` with a weight and
    # this function give the same bits for the same client.
    values = tensor.to(torch.float64)
    if factors is not None:
        values = values * factors.view(-1, *[1] * (tensor.dim() - 1))
    high, low = _parts(values)
    return Exact(high.sum(0), low.sum(0))


def _add_chunk(high: np.ndarray, low: np.ndarray, values: np.ndarray, weight: float) -> None:
    """As `_parts`, added to the sums, every operation in place: numpy is faster than torch on pieces this small."""
    rest = values.astype(np.float64)
    if weight != 1.0:
        rest *= weight
    coarse = rest + _COARSE
    coarse -= _COARSE
    high += coarse
    rest -= coarse
    rest += _FINE
    rest -= _FINE
    low += rest


def _parts(value: Number) -> tuple[Number, Number]:
    # The order of these operations is the rounding. Python evaluates them as written and never simplifies them.
    high = (value + _COARSE) - _COARSE
    return high, ((value - high) + _FINE) - _FINE
