"""Rounding at random and signs: hand-worked numbers, means over draws, and what is refused."""

from __future__ import annotations

import pytest
import torch

import fedtempo as ft
from fedtempo.client.compression.compressor import FlatForm, PackedError

DRAWS = 2000


def test_qsgd_sends_multiples_of_the_norm() -> None:
    """||(3, -4)|| = 5: with five levels the numbers are 3 and 4 fifths of it, and nothing is left to chance."""
    assert ft.compress.qsgd(5).round_trip(torch.tensor([3.0, -4.0]), 9).tolist() == pytest.approx([3.0, -4.0])
    sent = ft.compress.qsgd(1).round_trip(torch.tensor([3.0, -4.0], dtype=torch.float64), 9)
    assert set(sent.tolist()) <= {0.0, 5.0, -5.0}


def test_rounding_keeps_the_ends_and_the_grid() -> None:
    vector = torch.tensor([-1.0, 0.3, 2.0, 1.7])
    sent = ft.compress.rounding(2).round_trip(vector, 4)
    assert sent[0] == -1.0 and sent[2] == 2.0
    assert set(sent.tolist()) <= {-1.0, 0.0, 1.0, 2.0}
    assert torch.equal(ft.compress.rounding(3).round_trip(torch.full((5,), 0.1), 0), torch.full((5,), 0.1))


@pytest.mark.parametrize("each", [ft.compress.qsgd(3), ft.compress.rounding(2), ft.compress.random_k(0.3)], ids=repr)
def test_the_mean_over_draws_is_the_vector(each: ft.compress.Compressor) -> None:
    """Within five standard errors of each number's own spread."""
    vector = torch.tensor([0.9, -0.2, 0.0, 0.45, -1.3, 0.07], dtype=torch.float64)
    sent = torch.stack([each.round_trip(vector, key) for key in range(DRAWS)])
    error = sent.std(0) / DRAWS**0.5
    assert bool(((sent.mean(0) - vector).abs() <= 5 * error + 1e-12).all())
    assert float(sent.std(0).max()) > 0.05  # a draw is made


def test_signs_keep_the_sum_of_absolute_values() -> None:
    vector = torch.tensor([0.0, -1.0, 2.5, -0.5], dtype=torch.float64)
    sent = ft.compress.sign().round_trip(vector, 0)
    assert sent.tolist() == [1.0, -1.0, 1.0, -1.0] and sent.abs().sum() == vector.abs().sum()


def test_zeros_stay_zeros() -> None:
    for each in (ft.compress.qsgd(7), ft.compress.rounding(4), ft.compress.sign()):
        assert not each.round_trip(torch.zeros(9), 2).any()


@pytest.mark.parametrize(
    ("each", "part", "value"),
    [
        (ft.compress.qsgd(5), "norm", torch.tensor([-1.0])),
        (ft.compress.qsgd(5), "norm", torch.tensor([float("inf")])),
        (ft.compress.qsgd(5), "norm", torch.tensor([1.0], dtype=torch.float64)),
        (ft.compress.qsgd(5), "levels", torch.full((2,), 0b01100110, dtype=torch.uint8)),  # level 6 of 5
        (ft.compress.rounding(2), "range", torch.tensor([2.0, 1.0])),
        (ft.compress.rounding(2), "range", torch.tensor([0.0, float("nan")])),
        (ft.compress.rounding(2), "levels", torch.zeros(7, dtype=torch.uint8)),
        (ft.compress.sign(), "scale", torch.tensor([-0.5])),
        (ft.compress.sign(), "signs", torch.full((1,), 255, dtype=torch.uint8)),
    ],
)
def test_parts_that_no_encoder_makes_are_refused(each, part: str, value: torch.Tensor) -> None:
    parts = each.encode(torch.tensor([1.0, -2.0, 0.5, 0.0]), 3)
    assert parts[part].shape == value.shape or part in ("levels", "signs")
    with pytest.raises(PackedError):
        each.decode({**parts, part: value}, FlatForm(4, torch.float32), 3)


@pytest.mark.parametrize("make", [ft.compress.qsgd, ft.compress.rounding, ft.compress.random_k])
@pytest.mark.parametrize("much", [False, True])
def test_with_a_memory_the_error_is_smaller_than_the_vector(make, much: bool) -> None:
    """In the mean over draws, also where the undamped error is many times the vector: a memory cannot diverge."""
    given = {"qsgd": (1, 15), "rounding": (1, 6), "random_k": (0.01, 0.5)}[make.__name__][much]
    vector = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def error(feedback: str) -> float:
        rule = make(given, feedback=feedback)
        return sum(float((vector - rule.round_trip(vector, key)).square().sum()) for key in range(40)) / 40

    size = float(vector.square().sum())
    assert error("ef14") < size
    assert much or error("none") > size
