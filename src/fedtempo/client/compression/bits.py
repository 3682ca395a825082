"""Whole numbers of a few bits each, packed into bytes without gaps; and places of a vector, packed the shorter way."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedtempo.client.compression.compressor import PackedError


def bits_for(largest: int) -> int:
    """The bits that a number up to this one needs.

    >>> bits_for(1), bits_for(7), bits_for(8)
    (1, 3, 4)
    """
    return max(1, int(largest).bit_length())


def packed_size(count: int, width: int) -> int:
    """Bytes of so many numbers of `width` bits."""
    return -(-count * width // 8)


def packed_numbers(numbers: np.ndarray, width: int) -> Tensor:
    """Numbers of `width` bits each, the highest bit first; the last byte is filled up with zeros.

    >>> packed_numbers(np.array([1, 2, 3]), 2)
    tensor([108], dtype=torch.uint8)
    """
    if width == 8:
        return torch.from_numpy(numbers.astype(np.uint8))
    bits = np.empty((len(numbers), width), dtype=np.uint8)
    for place in range(width):
        bits[:, place] = (numbers >> (width - 1 - place)) & 1
    return torch.from_numpy(np.packbits(bits))


def unpacked_numbers(data: Tensor, width: int, count: int) -> np.ndarray:
    """The inverse of `packed_numbers`; bytes of another length, or with other bits in the filling, are refused."""
    raw = _raw(data, packed_size(count, width))
    if width == 8:
        return raw.astype(np.int64)
    bits = np.unpackbits(raw)
    if bits[count * width :].any():
        raise PackedError("packed numbers must end with zeros. They do not.")
    rows = bits[: count * width].reshape(count, width)
    numbers = np.zeros(count, dtype=np.int64)
    for place in range(width):
        numbers = (numbers << 1) | rows[:, place]
    return numbers


def packed_places(places: np.ndarray, size: int) -> Tensor:
    """Places in ascending order: as numbers, or as one bit for each number of the vector where that is shorter."""
    if _as_numbers(len(places), size):
        return packed_numbers(places, bits_for(size - 1))
    mask = np.zeros(size, dtype=np.uint8)
    mask[places] = 1
    return torch.from_numpy(np.packbits(mask))


def unpacked_places(data: Tensor, count: int, size: int) -> np.ndarray:
    """The inverse of `packed_places`: exactly `count` different places of the vector, in ascending order."""
    if _as_numbers(count, size):
        places = unpacked_numbers(data, bits_for(size - 1), count)
    else:
        places = np.flatnonzero(unpacked_numbers(data, 1, size))
    rising = len(places) == count and places[-1] < size and bool((np.diff(places) > 0).all())
    if not rising:
        raise PackedError(f"packed places must be {count} different ones below {size}, in ascending order.")
    return places


def _as_numbers(count: int, size: int) -> bool:
    return packed_size(count, bits_for(size - 1)) < packed_size(size, 1)


def _raw(data: Tensor, length: int) -> np.ndarray:
    if data.dtype != torch.uint8 or data.numel() != length:
        raise PackedError(f"packed numbers must be {length} bytes. Got {data.numel()} of {data.dtype}.")
    raw: np.ndarray = data.reshape(-1).numpy()
    return raw
