"""Modules that users write train as in a loop of plain torch, on every backend."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedtempo as ft
from fedtempo.client.network import Network, tensors_of
from tests.plain_loop import Rows, averaged, random_clients, trained


def cross_entropy(model: nn.Module, rows: Rows) -> Tensor:
    return F.cross_entropy(model(rows["x"]), rows["y"])


class UsedTwice(nn.Module):
    """One layer under three names: as its own attribute, and twice in the body."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.body = nn.Sequential(self.layer, nn.Tanh(), self.layer, nn.Tanh())
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.body(x))
        return output


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_a_layer_that_is_registered_under_several_names_trains(backend: str) -> None:
    torch.manual_seed(0)
    model, clients = UsedTwice(), random_clients()
    ours, plain = trained(model, clients, backend=backend), averaged(model, clients, cross_entropy)
    assert all(torch.allclose(ours[name], plain[name], rtol=0, atol=1e-12) for name in plain)


def test_a_body_gets_the_tensors_of_layers_that_have_another_name_first() -> None:
    """The body computed with the module's own weights, and not with those that came in."""
    model = UsedTwice()
    network, rows = Network(model), {"x": torch.randn(4, 6)}
    given = {name: t + 0.1 for name, t in tensors_of(model, torch.float32, "cpu").items()}
    features = network.features(given, rows)
    assert torch.allclose(network.forward(given, {"_features": features}), network.forward(given, rows))


def test_one_name_of_a_layer_is_not_chosen_without_the_others() -> None:
    shared = ft.algorithms.fedper(lr=0.1, steps=1, head=ft.params.submodule("body.0"))
    with pytest.raises(ft.ConfigError, match=r"'body.0.weight' and 'layer.weight', or under none"):
        trained(UsedTwice(), random_clients(), algorithm=shared)
