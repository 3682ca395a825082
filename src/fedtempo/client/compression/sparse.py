"""Compressors that send some of the numbers and leave out the others."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fedtempo.client.compression.bits import packed_places, unpacked_places
from fedtempo.client.compression.compressor import (
    Compressor,
    Decode,
    Encode,
    Feedback,
    FlatForm,
    PackedError,
    Parts,
    named_compressor,
)
from fedtempo.errors import require
from fedtempo.randomness import random_bits

PLACES, VALUES = "places", "values"


@named_compressor
def top_k(fraction: float, *, feedback: Feedback = "ef14") -> Compressor:
    """The k largest numbers of each tensor by absolute value, k = max(1, ceil(fraction d)); of equal ones the first.

    A message has k numbers and their places: ceil(log2 d) bits each, or one bit for each of the d numbers where that
    is shorter. With k = d there are no places. Without feedback the small numbers are lost for good.

    >>> top_k(0.5).round_trip(torch.tensor([1.0, -3.0, 2.0, 0.5]), key=0)
    tensor([ 0., -3.,  2.,  0.])
    """
    _check_fraction(fraction)

    def encode(values: Tensor, key: int) -> Parts:
        count = kept_of(fraction, values.numel())
        if count == values.numel():
            return {VALUES: values}
        places = _largest(values, count)
        return {PLACES: packed_places(places, values.numel()), VALUES: values[torch.from_numpy(places)]}

    def decode(parts: Parts, form: FlatForm, key: int) -> Tensor:
        count = kept_of(fraction, form.size)
        values = _checked(parts[VALUES], count, form)
        if count == form.size:
            return values
        return _scattered(values, unpacked_places(parts[PLACES], count, form.size), form)

    return Compressor(encode, decode, feedback, VALUES)


@named_compressor
def random_k(fraction: float, *, feedback: Feedback = "none") -> Compressor:
    """k random numbers of each tensor, k = max(1, ceil(fraction d)), times d / k, so that their mean is the tensor.

    Both sides draw the same places from the run's seed, so a message is the k numbers alone. With feedback the numbers
    are sent as they are: multiplied by d / k, the error would be larger than the tensor and the memory could diverge.

    >>> random_k(0.5).round_trip(torch.ones(4), key=1).sum()
    tensor(4.)
    """
    _check_fraction(fraction)
    return Compressor(*_random_pair(fraction, True), feedback, VALUES, _random_pair(fraction, False))


def _random_pair(fraction: float, scaled: bool) -> tuple[Encode, Decode]:
    def encode(values: Tensor, key: int) -> Parts:
        count = kept_of(fraction, values.numel())
        return {VALUES: values[torch.from_numpy(_drawn(count, values.numel(), key))]}

    def decode(parts: Parts, form: FlatForm, key: int) -> Tensor:
        count = kept_of(fraction, form.size)
        values = _checked(parts[VALUES], count, form)
        values = values * (form.size / count) if scaled and count < form.size else values
        return _scattered(values, _drawn(count, form.size, key), form)

    return encode, decode


def kept_of(fraction: float, size: int) -> int:
    """max(1, ceil(fraction size)).

    >>> kept_of(0.07, 100), kept_of(0.01, 10), kept_of(1.0, 5)
    (7, 1, 5)
    """
    # 0.07 * 100 is a little more than 7; the factor takes off what rounding has added.
    return max(1, math.ceil(fraction * size * (1 - 1e-12)))


def _check_fraction(fraction: float) -> None:
    require(0 < fraction <= 1, "fraction", "a number in (0, 1]", fraction)


def _largest(values: Tensor, count: int) -> np.ndarray:
    """The places of the largest numbers in ascending order."""
    wide = values.float() if values.element_size() < 4 else values  # numpy has no bfloat16
    sizes = wide.abs().numpy()
    threshold = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
    above = np.flatnonzero(sizes > threshold)
    equal = np.flatnonzero(sizes == threshold)[: count - len(above)]
    return np.sort(np.concatenate([above, equal]))


def _drawn(count: int, size: int, key: int) -> np.ndarray:
    """`count` different places of a vector in ascending order, each set of places equally likely."""
    if count == size:
        return np.arange(size)
    order = np.argpartition(random_bits(np.array([key]), size)[0], count)
    return np.sort(order[:count])


def _checked(values: Tensor, count: int, form: FlatForm) -> Tensor:
    if values.dtype != form.dtype or values.shape != (count,):
        raise PackedError(f"values must be {count} numbers of {form.dtype}. Got {tuple(values.shape)} {values.dtype}.")
    return values


def _scattered(values: Tensor, places: np.ndarray, form: FlatForm) -> Tensor:
    result = torch.zeros(form.size, dtype=form.dtype)
    result[torch.from_numpy(places)] = values
    return result
