"""First weights: drawn on the run's seed, kept on request, and never at the cost of the global generator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm
from torch.nn.utils.parametrize import register_parametrization

from fedtempo.models import mlp
from fedtempo.models.weights import build, redraw, seeded


def weight(model: nn.Module) -> torch.Tensor:
    return model.state_dict()["head.weight"]


def test_the_seed_decides_whatever_the_module_held_before() -> None:
    one, other = mlp(4, [3], 2), mlp(4, [3], 2)
    assert not torch.equal(weight(one), weight(other))
    assert torch.equal(weight(build(one, 5)[0]), weight(build(other, 5)[0]))
    assert torch.equal(weight(build(one, 5)[0]), weight(build(lambda: mlp(4, [3], 2), 5)[0]))
    assert not torch.equal(weight(build(one, 5)[0]), weight(build(one, 6)[0]))


def test_weights_are_kept_on_request_and_where_a_module_cannot_be_drawn_again() -> None:
    own = mlp(4, [3], 2)
    assert torch.equal(weight(build(own, 5, "model")[0]), weight(own))
    plain = nn.Sequential(nn.Linear(2, 2))
    assert torch.equal(build(plain, 5)[0].state_dict()["0.weight"], plain.state_dict()["0.weight"])


def test_the_module_that_was_given_is_not_the_one_that_trains() -> None:
    own = mlp(4, [3], 2)
    built = build(own, 5, "model")[0]
    with torch.no_grad():
        built.head.weight.zero_()
    assert weight(own).any()


def test_the_global_generator_is_left_alone() -> None:
    model = mlp(4, [3], 2)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with seeded(1, "x"):
        inside = torch.rand(2)
    build(model, 5)
    assert torch.equal(torch.rand(2), expected) and not torch.equal(inside, expected)


def test_every_layer_is_drawn_by_its_own_rule() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), nn.GRU(3, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(9.0)
    redraw(model)
    assert model[0][1].weight.tolist() == [1.0] * 3  # batch norm starts at one
    assert not any((parameter == 9.0).any() for parameter in model.parameters())


class Halved(nn.Module):
    """A parametrisation that does not say where a weight comes from."""

    def forward(self, original: torch.Tensor) -> torch.Tensor:
        return original / 2


def halved(layer: nn.Linear) -> nn.Module:
    return register_parametrization(layer, "weight", Halved())


@pytest.mark.parametrize(
    "make",
    [
        lambda: weight_norm(nn.Linear(3, 3)),
        lambda: spectral_norm(nn.Linear(3, 3)),
        lambda: orthogonal(nn.Linear(3, 3), use_trivialization=False),
        lambda: halved(nn.Linear(3, 3)),
        lambda: nn.MultiheadAttention(4, 2),
        lambda: nn.Transformer(4, 2, 1, 1, 4, batch_first=True),
    ],
)
def test_a_layer_that_computes_or_shares_its_weights_is_drawn_as_it_is_made(make: Callable[[], nn.Module]) -> None:
    one, other = (nn.Sequential(make()) for _ in range(2))
    for model in (one, other):
        with torch.random.fork_rng():
            torch.manual_seed(7)
            redraw(model)
    parameters = dict(other.named_parameters())
    assert all(torch.allclose(value, parameters[name]) for name, value in one.named_parameters())
    if hasattr(one[0], "weight"):
        torch.manual_seed(7)
        torch.testing.assert_close(one[0].bias, nn.Linear(3, 3).bias)
