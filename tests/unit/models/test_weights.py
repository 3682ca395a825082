"""First weights: drawn on the run's seed, kept on request, and never at the cost of the global generator."""

from __future__ import annotations

import torch
from torch import nn

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
