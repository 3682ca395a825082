"""Numbers of a few bits, and places of a vector, as bytes without gaps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedtempo.client.compression.bits import (
    bits_for,
    packed_numbers,
    packed_places,
    packed_size,
    unpacked_numbers,
    unpacked_places,
)
from fedtempo.client.compression.compressor import PackedError


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 11, 16])
def test_numbers_of_any_width_come_back(width: int) -> None:
    numbers = np.random.default_rng(width).integers(0, 2**width, 37)
    data = packed_numbers(numbers, width)
    assert data.numel() == packed_size(37, width) == -(-37 * width // 8)
    assert np.array_equal(unpacked_numbers(data, width, 37), numbers)


def test_bytes_of_another_length_or_with_a_filling_are_refused() -> None:
    data = packed_numbers(np.array([1, 2, 3]), 2)
    with pytest.raises(PackedError, match="must be 1 bytes"):
        unpacked_numbers(torch.cat([data, data]), 2, 3)
    with pytest.raises(PackedError, match="must be 1 bytes"):
        unpacked_numbers(data.to(torch.int32), 2, 3)
    with pytest.raises(PackedError, match="end with zeros"):
        unpacked_numbers(data | 1, 2, 3)


@pytest.mark.parametrize(("count", "size", "length"), [(2, 100, 2), (30, 100, 13), (1, 2, 1), (99, 100, 13)])
def test_places_take_the_shorter_form(count: int, size: int, length: int) -> None:
    """2 places of 7 bits are 2 bytes; 30 would be 27, a bit for each of the 100 numbers is 13."""
    places = np.sort(np.random.default_rng(count).permutation(size)[:count])
    data = packed_places(places, size)
    assert data.numel() == length
    assert np.array_equal(unpacked_places(data, count, size), places)


def test_places_that_no_encoder_makes_are_refused() -> None:
    width = bits_for(99)
    for wrong in ([5, 5], [7, 3], [3, 100], [3, 127]):
        with pytest.raises(PackedError, match="2 different ones below 100"):
            unpacked_places(packed_numbers(np.array(wrong), width), 2, 100)
    mask = packed_places(np.arange(30), 100)
    for count in (29, 31):
        with pytest.raises(PackedError, match=f"{count} different"):
            unpacked_places(mask, count, 100)
