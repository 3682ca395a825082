"""Norms of parts of a gradient, and weight decay that is bounded by itself."""

from __future__ import annotations

import pytest
import torch

from fedtempo.client.clipping import clip_by_norm, decay_within, length_of_order
from fedtempo.schedules import Now, constant

GRADIENT = {"a.weight": torch.tensor([3.0, 0.0]), "a.bias": torch.tensor([4.0]), "b.weight": torch.tensor([0.5])}


@pytest.mark.parametrize(
    ("scope", "order", "factors", "clipped"),
    [
        ("all", 1, [1 / 7.5, 1 / 7.5, 1 / 7.5], 1),
        ("all", "max", [1 / 4, 1 / 4, 1 / 4], 1),
        ("layer", 2, [1 / 5, 1 / 5, 1], 1),
        ("tensor", 2, [1 / 3, 1 / 4, 1], 2),
    ],
)
def test_each_part_has_its_own_norm(scope: str, order: object, factors: list[float], clipped: int) -> None:
    clip = clip_by_norm(1.0, scope=scope, order=order)
    found, state = clip.update(GRADIENT, clip.init(GRADIENT), GRADIENT, Now())
    for (name, before), factor in zip(GRADIENT.items(), factors, strict=True):
        torch.testing.assert_close(found[name], factor * before)
    assert list(found) == list(GRADIENT)
    assert float(clip.measurements(state)["clipped_steps"]) == clipped


def test_no_part_is_longer_than_the_limit() -> None:
    for order in (1, 2, "max"):
        clip = clip_by_norm(0.7, scope="tensor", order=order)
        found, _ = clip.update(GRADIENT, clip.init(GRADIENT), GRADIENT, Now())
        assert all(float(length_of_order({n: t}, order)) <= 0.7 + 1e-6 for n, t in found.items())


def test_decay_within_a_norm() -> None:
    """3-4-5: a limit of 2.5 halves the decay, one of 10 leaves it, and zero weights have none."""
    weights = {"w": torch.tensor([3.0, 4.0])}
    nothing = {"w": torch.zeros(2)}
    for limit, factor in ((2.5, 0.05), (10.0, 0.1)):
        decay = decay_within(constant(0.1), constant(limit))
        torch.testing.assert_close(decay.update(nothing, (), weights, Now())[0]["w"], factor * weights["w"])
        assert not decay.update(nothing, (), nothing, Now())[0]["w"].any()
