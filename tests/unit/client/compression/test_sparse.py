"""Which numbers are sent, and where they come back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.client.compression.compressor import FlatForm, PackedError


def test_of_equal_numbers_the_first_are_taken() -> None:
    assert ft.compress.top_k(0.5).round_trip(torch.tensor([2.0, -2.0, 2.0, -2.0]), 0).tolist() == [2, -2, 0, 0]
    assert ft.compress.top_k(0.5).round_trip(torch.tensor([1.0, 2.0, 2.0, 2.0]), 0).tolist() == [0, 2, 2, 0]


def test_zeros_stay_zeros() -> None:
    for each in (ft.compress.top_k(0.1), ft.compress.random_k(0.1)):
        assert not each.round_trip(torch.zeros(20), 5).any()


def test_the_largest_leave_the_smallest_error() -> None:
    """||p - C(p)|| <= sqrt(1 - k/d) ||p||, and no other choice of k numbers leaves less."""
    vector = torch.from_numpy(np.random.default_rng(0).standard_normal(50))
    left = vector - ft.compress.top_k(0.2).round_trip(vector, 0)
    assert float(left.norm()) <= (1 - 0.2) ** 0.5 * float(vector.norm())
    assert float(left.norm()) == pytest.approx(float(vector.abs().sort().values[:40].norm()))


def test_random_places_follow_the_key_and_are_equally_likely() -> None:
    one = ft.compress.random_k(0.25)
    vector = torch.ones(8, dtype=torch.float64)
    assert torch.equal(one.round_trip(vector, 3), one.round_trip(vector, 3))
    counts = sum((one.round_trip(vector, key) != 0).double() for key in range(4000))
    # Each place is drawn 1000 times of 4000, give or take 27.
    assert bool(((counts - 1000).abs() < 5 * 27.4).all())
    assert int(one.encode(vector, 0)["values"].numel()) == 2


def test_parts_of_another_form_are_refused() -> None:
    top, form = ft.compress.top_k(0.25), FlatForm(8, torch.float32)
    parts = top.encode(torch.arange(8.0), 0)
    for wrong in (parts["values"].double(), parts["values"][:1], parts["values"].reshape(2, 1)):
        with pytest.raises(PackedError, match="values must be 2 numbers"):
            top.decode({**parts, "values": wrong}, form, 0)
