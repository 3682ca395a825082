"""Rates and decays that are functions of gradient and weights."""

from __future__ import annotations

import math

import pytest
import torch

from fedtempo.client.adaptive import (
    InProportion,
    bounded_decay,
    clipped_together,
    gradient_clipped,
    scale_gradient_and_decay,
)
from fedtempo.params import Params
from fedtempo.schedules import Now, as_schedule

GRADIENT, WEIGHTS = {"w": torch.tensor([0.0, 3.0])}, {"w": torch.tensor([3.0, 1.0])}


def step(rate: object, decay: object) -> list[float]:
    found, _ = scale_gradient_and_decay(rate, decay).update(GRADIENT, (), WEIGHTS, Now())
    return found["w"].tolist()


def test_equations_three_to_five_by_hand() -> None:
    """g + x = (3, 4) has norm 5, g has norm 3; the limit is 5/2 and 3/2."""
    assert step(*clipped_together(1.0, 2.5)) == [1.5, 2.0]
    assert step(*gradient_clipped(1.0, 1.5)) == [3.0, 2.5]
    assert step(*clipped_together(1.0, 6.0)) == step(*gradient_clipped(1.0, 6.0)) == [3.0, 4.0]


def test_a_factor_may_differ_from_tensor_to_tensor() -> None:
    rate = lambda gradient, weights, now: {"w": 2.0}  # noqa: E731
    assert step(rate, lambda gradient, weights, now: 0.0) == [0.0, 6.0]


@pytest.mark.parametrize("rate", [2.0, {"w": 2.0}])
def test_a_decay_in_proportion_asks_for_the_rate_once(rate: float | dict[str, float]) -> None:
    asked = []

    def noted(gradient: Params, weights: Params, now: Now) -> float | dict[str, float]:
        asked.append(now)
        return rate

    decay = InProportion(noted, as_schedule(0.5))
    assert step(noted, decay) == [3.0, 7.0]
    assert len(asked) == 1
    # Of another rate than the step's, the decay is what its own says.
    assert step(lambda gradient, weights, now: 1.0, decay) == [3.0, 4.0]


def test_a_gradient_that_is_no_number_stays_one() -> None:
    rate, _ = clipped_together(1.0, 2.5)
    assert math.isnan(rate({"w": torch.tensor([math.nan])}, {"w": torch.zeros(1)}, Now()))


def test_the_decay_is_bounded() -> None:
    decay = bounded_decay(0.5, 1.0)
    length = float(WEIGHTS["w"].norm())
    assert abs(float(decay(GRADIENT, WEIGHTS, Now())) - 0.5 / length) < 1e-7
    assert float(decay(GRADIENT, GRADIENT | {"w": torch.zeros(2)}, Now())) == 0.5
