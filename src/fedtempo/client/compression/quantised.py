"""Compressors that send every number in a few bits, rounded at random or to its sign."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedtempo.client.compression.bits import bits_for, packed_numbers, unpacked_numbers
from fedtempo.client.compression.compressor import (
    Compressor,
    Decode,
    Feedback,
    FlatForm,
    PackedError,
    Parts,
    named_compressor,
)
from fedtempo.errors import require
from fedtempo.randomness import uniform

MOST_LEVELS = 2**15


@named_compressor
def qsgd(levels: int, *, feedback: Feedback = "none") -> Compressor:
    """||p|| sign(p_j) l_j / s with l_j = floor(a_j) + [U < a_j - floor(a_j)], a_j = s |p_j| / ||p||, s = `levels`.

    Alistarh et al. (2017). The mean over the draws is p. A message has the norm and, for each number, a sign and a
    level of fixed length, 1 + ceil(log2(s + 1)) bits; the paper's Elias codes would be shorter, and their length would
    depend on the numbers. With feedback the result is divided by 1 + min(d / s^2, sqrt(d) / s), see `_damped`.

    >>> qsgd(1).round_trip(torch.tensor([0.0, -2.0, 0.0]), key=3)
    tensor([ 0., -2.,  0.])
    """
    require(1 <= levels <= MOST_LEVELS, "levels", f"an int in [1, {MOST_LEVELS}]", levels)
    width = bits_for(levels)

    def encode(values: Tensor, key: int) -> Parts:
        wide = values.double()
        norm = _at_least(float(torch.linalg.vector_norm(wide)), values.dtype)
        level = _rounded(wide.abs() * (levels / float(norm) if norm > 0 else 0.0), levels, key)
        signs = (values < 0).numpy() & (level > 0)
        return {"norm": norm.reshape(1), "levels": packed_numbers(level | (signs.astype(np.int64) << width), width + 1)}

    def decode(parts: Parts, form: FlatForm, key: int) -> Tensor:
        (norm,) = _scales(parts, "norm", form)
        both = unpacked_numbers(parts["levels"], width + 1, form.size)
        level, negative = both & ((1 << width) - 1), both >> width == 1
        if (level > levels).any() or norm < 0:
            raise PackedError(f"levels must be at most {levels} and the norm not negative. They are not.")
        return torch.from_numpy(np.where(negative, -level, level) * (norm / levels)).to(form.dtype)

    def spread(size: int) -> float:
        return min(size / levels**2, math.sqrt(size) / levels)

    return Compressor(encode, decode, feedback, with_memory=(encode, _damped(decode, spread)))


@named_compressor
def rounding(bits: int, *, feedback: Feedback = "none") -> Compressor:
    """Every number rounded at random to one of 2^bits equally spaced ones from the tensor's smallest to its largest.

    A number between two of them goes to either, the nearer one the more often, so that the mean over the draws is the
    number itself. A message has the smallest, the largest, and `bits` bits for each number. With feedback the result is
    divided by 1 + d / (2 (2^bits - 1)^2), see `_damped`.

    >>> rounding(1).round_trip(torch.tensor([2.0, 5.0]), key=0)
    tensor([2., 5.])
    """
    require(1 <= bits <= 16, "bits", "an int in [1, 16]", bits)
    top = 2**bits - 1

    def encode(values: Tensor, key: int) -> Parts:
        lowest, highest = values.min().to(_scale_type(values.dtype)), values.max().to(_scale_type(values.dtype))
        spread = float(highest) - float(lowest)
        level = _rounded((values.double() - float(lowest)) * (top / spread if spread > 0 else 0.0), top, key)
        return {"range": torch.stack([lowest, highest]), "levels": packed_numbers(level, bits)}

    def decode(parts: Parts, form: FlatForm, key: int) -> Tensor:
        lowest, highest = _scales(parts, "range", form, 2)
        if not lowest <= highest:
            raise PackedError("range must be the smallest number and the largest. It is not.")
        level = unpacked_numbers(parts["levels"], bits, form.size)
        # The division may round; no number may leave the range, and a constant tensor has to stay what it is.
        back = np.clip((lowest * (top - level) + highest * level) / top, lowest, highest)
        return torch.from_numpy(back).to(form.dtype)

    def spread(size: int) -> float:
        # An error is at most half a step, and the range squared at most twice the sum of squares.
        return float(size / (2 * top**2))

    return Compressor(encode, decode, feedback, with_memory=(encode, _damped(decode, spread)))


@named_compressor
def sign(*, feedback: Feedback = "ef14") -> Compressor:
    """One bit for each number, and the mean absolute value that all of them get.

    p_j becomes ||p||_1 / d with the sign of p_j; 0 counts as positive.
    Scaled as in EF-signSGD (Karimireddy et al., 2019), so that the sum of absolute values stays what it was.

    >>> sign().round_trip(torch.tensor([3.0, -1.0, 2.0]), key=0)
    tensor([ 2., -2.,  2.])
    """

    def encode(values: Tensor, key: int) -> Parts:
        scale = values.double().abs().mean().to(_scale_type(values.dtype))
        return {"scale": scale.reshape(1), "signs": packed_numbers((values < 0).numpy().astype(np.int64), 1)}

    def decode(parts: Parts, form: FlatForm, key: int) -> Tensor:
        (scale,) = _scales(parts, "scale", form)
        if scale < 0:
            raise PackedError("scale must not be negative. It is.")
        return torch.from_numpy(np.where(unpacked_numbers(parts["signs"], 1, form.size) == 1, -scale, scale)).to(
            form.dtype
        )

    return Compressor(encode, decode, feedback)


def _damped(decode: Decode, spread: Callable[[int], float]) -> Decode:
    """C(p) / (1 + w), where E||C(p) - p||^2 <= w ||p||^2: what makes an unbiased compressor fit for a memory.

    With w above 1 the error is larger than the vector, and a memory of errors grows without end. Damped, the error is
    at most w / (1 + w) of it (Beznosikov et al., 2020). Random-k without its factor d / k is the same.
    """

    def damped(parts: Parts, form: FlatForm, key: int) -> Tensor:
        return decode(parts, form, key) / (1 + spread(form.size))

    return damped


def _rounded(wide: Tensor, top: int, key: int) -> np.ndarray:
    """Each number rounded up with the probability of its fraction, else down; never above `top`."""
    below = wide.floor()
    draws = uniform(torch.tensor(key), wide.shape, 0)
    numbers: np.ndarray = (below + (draws < wide - below)).clamp(0, top).long().numpy()
    return numbers


def _scale_type(dtype: torch.dtype) -> torch.dtype:
    """The type that scales travel in: 16 bits would spoil all numbers at once."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _at_least(value: float, dtype: torch.dtype) -> Tensor:
    """The value in the type of scales, rounded up: no number may be larger than the norm."""
    scale = torch.tensor(value, dtype=_scale_type(dtype))
    return scale if float(scale) >= value else torch.nextafter(scale, torch.tensor(math.inf, dtype=scale.dtype))


def _scales(parts: Parts, name: str, form: FlatForm, count: int = 1) -> list[float]:
    tensor, wanted = parts[name], _scale_type(form.dtype)
    if tensor.dtype != wanted or tensor.shape != (count,) or not bool(tensor.isfinite().all()):
        raise PackedError(f"{name} must be {count} finite numbers of {wanted}. Got others.")
    return [float(number) for number in tensor]
