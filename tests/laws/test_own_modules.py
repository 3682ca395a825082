"""Modules that users write train as in a loop of plain torch, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

import fedtempo as ft
from fedtempo.client.network import Network, tensors_of
from tests.plain_loop import Rows, averaged, federated, random_clients, trained


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


def test_a_run_starts_from_the_state_dict_of_a_model_with_tied_layers() -> None:
    """It has a tensor under each of its names, and all but the first were unknown."""
    model, start = UsedTwice(), UsedTwice()
    still = ft.algorithms.fedavg(lr=0.0, steps=1)
    ours = trained(model, random_clients(), rounds=1, algorithm=still, init=start.state_dict())
    assert all(torch.equal(ours[name], tensor.double()) for name, tensor in start.named_parameters())
    only_last = {"body.2.weight": torch.ones(6, 6)}
    assert trained(model, random_clients(), rounds=1, algorithm=still, init=only_last)["layer.weight"].eq(1).all()
    apart = {**start.state_dict(), "body.2.weight": torch.zeros(6, 6)}
    with pytest.raises(ft.ConfigError, match=r"init\['body.2.weight'\] must be equal to init\['layer.weight'\]"):
        trained(model, random_clients(), algorithm=still, init=apart)


class Normed(nn.Module):
    """A body whose layers have names of their own too, or have not."""

    def __init__(self, named: bool, affine: bool) -> None:
        super().__init__()
        layer, norm = nn.Linear(6, 6), nn.BatchNorm1d(6, affine=affine, track_running_stats=True)
        if named:
            self.layer, self.norm = layer, norm
        self.body, self.head = nn.Sequential(layer, norm, nn.Tanh()), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.body(x))
        return output


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("method", [ft.algorithms.fedbn, ft.algorithms.lg_fedavg])
def test_layers_with_several_names_are_personal_like_those_with_one(
    method: Callable[..., ft.Algorithm], affine: bool
) -> None:
    """A personal tensor was looked for under each of its names, and training keeps it under the first."""
    ends = []
    for named in (False, True):
        torch.manual_seed(0)
        algorithm, data = method(lr=0.1, steps=3), federated(random_clients((6, 8, 4)))
        model = Normed(named, affine)
        result = ft.run(model=model, data=data, algorithm=algorithm, rounds=2, init="model", evaluation=None)
        ends.append(result.model(client=1).state_dict())
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())


def test_a_buffer_is_not_personal_under_one_of_its_names() -> None:
    shared = ft.algorithms.fedper(lr=0.1, steps=1, head=ft.params.matching("body.1.running_*", "head.*"))
    with pytest.raises(ft.ConfigError, match=r"'body.1.running_mean' and 'norm.running_mean', or under none"):
        ft.run(model=Normed(True, False), data=federated(random_clients((6, 8))), algorithm=shared, rounds=1)


class Centred(nn.Module):
    """Subtracts a running mean, which its state dict leaves out."""

    def __init__(self, assigns: bool) -> None:
        super().__init__()
        self.layer, self.assigns = nn.Linear(6, 3), assigns
        self.register_buffer("mean", torch.zeros(6), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.assigns:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        elif self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        output: Tensor = self.layer(x - self.mean)
        return output


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("assigns", [False, True])
def test_a_buffer_that_a_state_dict_leaves_out_is_part_of_the_result(assigns: bool, backend: str) -> None:
    """The model that was handed out had the first mean, and not the one that it was scored with."""
    torch.manual_seed(0)
    model, clients = Centred(assigns), random_clients()
    ours, plain = trained(model, clients, backend=backend), averaged(model, clients, cross_entropy)
    assert plain["mean"].any()
    assert all(torch.allclose(ours[name], plain[name], rtol=0, atol=1e-12) for name in plain)


class Table(nn.Module):
    """Has a table that grows with its input, as tables of positions do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("places", torch.zeros(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if len(self.places) < x.shape[1]:
            self.places = torch.linspace(0, 1, x.shape[1], dtype=x.dtype)
        output: Tensor = self.layer(x + self.places)
        return output


def test_a_table_that_grows_is_no_part_of_the_result() -> None:
    torch.manual_seed(0)
    assert trained(Table(), random_clients())["places"].tolist() == [0.0]


class Stores(nn.Module):
    """Stores itself in its own way: under one name, with a number, and with weights changed while they are loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x)
        return output

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 2}

    def set_extra_state(self, state: dict[str, int]) -> None:
        assert state["version"] == 2

    def load_state_dict(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        raise AssertionError("another module's way of storing weights is not asked")


def test_a_module_that_stores_itself_in_its_own_way_is_handed_out(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, clients = Stores(), random_clients()
    plain = averaged(model, clients, cross_entropy)
    ours = trained(model, clients, backend="processes", workers=2, out=tmp_path / "run")
    assert all(torch.allclose(ours[name], plain[name], rtol=0, atol=1e-12) for name in plain)
    with safe_open(tmp_path / "run" / "model-last.safetensors", "pt") as file:
        assert sorted(file.keys()) == ["layer.bias", "layer.weight"]
    ft.check_model(model, data=federated(clients))


def test_a_check_takes_a_model_with_a_buffer_that_its_state_dict_leaves_out() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)
            self.register_buffer("scale", torch.full((6,), 2.0), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.layer(x * self.scale)
            return output

    ft.check_model(Scaled, data=federated(random_clients()))


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_parameters_are_refused(kind: str) -> None:
    """Clients' weights are other tensors than the module's: a mask on a gradient was left out without a word."""

    def masked() -> nn.Module:
        model = nn.Linear(6, 3)
        getattr(model.weight, kind)(lambda gradient: None)
        return model

    for model in (masked, masked()):
        with pytest.raises(ft.ModelError, match=r"parameters must have no hooks.*Got one on 'weight'"):
            ft.run(model=model, data=federated(random_clients()), algorithm=ft.algorithms.fedavg(0.1, 1), rounds=1)
