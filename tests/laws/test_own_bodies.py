"""Models that do more than they show: beside body and head, or in their derivatives. They train as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedtempo as ft

RNG = np.random.default_rng(0)
CLIENTS = [(RNG.standard_normal((n, 4)), RNG.integers(0, 3, n)) for n in (5, 8, 6)]
DATA = ft.data.FederatedData.from_clients(CLIENTS)
USUAL: dict[str, Any] = {"rounds": 2, "dtype": torch.float64, "evaluation": None, "batch_size": 4, "progress": False}


class Split(nn.Module):
    """A body and a head under other names, so that nothing can be known about them."""

    names = ("trunk", "last")

    def __init__(self) -> None:
        super().__init__()
        first, last = self.names
        self.add_module(first, nn.Linear(4, 5))
        self.add_module(last, nn.Linear(5, 3))
        self.past = nn.Linear(4, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        first, last = (self.get_submodule(name) for name in self.names)
        outputs = self.joined(first, last, x)
        return outputs if labels is None else {"logits": outputs, "loss": F.cross_entropy(outputs, labels)}

    def joined(self, first: nn.Module, last: nn.Module, x: Tensor) -> Tensor:
        return last(torch.relu(first(x)))


class WithAWayPast(Split):
    def joined(self, first: nn.Module, last: nn.Module, x: Tensor) -> Tensor:
        return last(first(x)) + self.past(x)


class Scaled(Split):
    def joined(self, first: nn.Module, last: nn.Module, x: Tensor) -> Tensor:
        return last(first(x / 2))


class Nothing(Split):
    def joined(self, first: nn.Module, last: nn.Module, x: Tensor) -> Tensor:
        return last(first(x))


def trained(kind: type[Split], names: tuple[str, str], algorithm: ft.Algorithm, **settings: Any) -> list[Tensor]:
    named = type(kind.__name__, (kind,), {"names": names})
    torch.manual_seed(0)
    run = ft.run(model=named().double(), data=DATA, algorithm=algorithm, **{**USUAL, **settings})
    return [*run.params.values(), *(t for client in range(3) for t in run.client_state(client).values())]


@pytest.mark.parametrize("loss", [None, "own"])
@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("kind", [Split, WithAWayPast, Scaled, Nothing])
def test_features_are_reused_only_where_the_head_sees_nothing_else(kind: type[Split], backend: str, loss: Any) -> None:
    def algorithm(head: str) -> ft.Algorithm:
        return ft.algorithms.fedrep(lr=0.1, head_steps=3, body_steps=1, head=ft.params.submodule(head))

    known = trained(kind, ("body", "head"), algorithm("head"), backend=backend, loss=loss)
    unknown = trained(kind, ("trunk", "last"), algorithm("last"), backend=backend, loss=loss)
    for one, other in zip(known, unknown, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [Split, WithAWayPast])
def test_moon_without_its_term_is_fedavg_on_them(kind: type[Split]) -> None:
    moon = ft.algorithms.moon(lr=0.1, steps=2, mu=0.0)
    plain = ft.algorithms.fedavg(lr=0.1, steps=2, weighting="samples")
    runs = [
        ft.run(model=type("M", (kind,), {"names": ("body", "head")}), data=DATA, algorithm=one, **USUAL)
        for one in (moon, plain)
    ]
    for name, tensor in runs[0].params.items():
        torch.testing.assert_close(tensor, runs[1].params[name], rtol=0, atol=1e-12)


def test_fedrod_refuses_a_way_past_the_head_whose_outputs_it_would_count_twice() -> None:
    settings = {"data": DATA, "algorithm": ft.algorithms.fedrod(lr=0.1, steps=1), **USUAL}
    ft.run(model=type("M", (Split,), {"names": ("body", "head")}), **settings)
    with pytest.raises(ft.errors.ModelError, match="whose outputs are those of its head"):
        ft.run(model=type("M", (WithAWayPast,), {"names": ("body", "head")}), **settings)


class Centred(Split):
    """Outputs of rows stand for themselves; the gradient of a row depends on the others."""

    def joined(self, first: nn.Module, last: nn.Module, x: Tensor) -> Tensor:
        features = first(x)
        if features.requires_grad:
            features.register_hook(lambda gradient: gradient - gradient.mean(0))
        return last(features)


def test_batches_are_not_padded_where_gradients_of_rows_depend_on_each_other() -> None:
    algorithm = ft.algorithms.fedavg(lr=0.5, steps=2)
    serial, together = (trained(Centred, ("a", "b"), algorithm, backend=b) for b in ("serial", "vectorised"))
    for one, other in zip(serial, together, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
