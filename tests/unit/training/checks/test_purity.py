"""A model is tried before training: what it reads are its inputs and weights, what it writes are its buffers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import fedtempo as ft
from tests.unit.training.checks.test_model import Two, clients, run


class InAList(Two):
    """Computes with weights that it also keeps where nobody can replace them."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [self.body.weight, self.body.bias]

    def hidden(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, *self.kept)


class InAFunction(Two):
    def __init__(self) -> None:
        super().__init__()
        body = self.body
        self.double()
        self.function = lambda x: torch.relu(body(x))

    def hidden(self, x: Tensor) -> Tensor:
        return self.function(x)


class Remembers(Two):
    """A state that goes on from batch to batch, as of a recurrent model: it would go on from client to client."""

    last: Tensor | float = 0.0

    def hidden(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.body(x) + self.last)
        self.last = hidden.mean().detach()
        return hidden


class Follows(Two):
    """A frozen copy that follows a layer, as in MoCo and BYOL."""

    def __init__(self) -> None:
        super().__init__()
        self.copy = copy.deepcopy(self.body).requires_grad_(False)

    def hidden(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.copy.weight.mul_(0.9).add_(0.1 * self.body.weight)
        return self.body(x) - self.copy(x).detach()


class Grows(Two):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(0, 8))

    def hidden(self, x: Tensor) -> Tensor:
        self.seen = torch.cat([self.seen, x])
        return self.body(x)


class WritesItsInputs(Two):
    def hidden(self, x: Tensor) -> Tensor:
        x -= 0.5
        return self.body(x)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (WritesItsInputs, "leave its inputs as they are.*Got a write into 'x'"),
        (torch.nn.Sequential(torch.nn.ReLU(inplace=True), Two()), "no inplace=True in its first layer"),
        (InAList, "registered parameters"),
        (InAFunction, "registered parameters"),
        (InAFunction(), "registered parameters"),  # its copy still computes with the weights of this one
        (Remembers, "must be a buffer"),
        (Follows, "changes in 'copy.weight'"),
        (Grows, r"buffer 'seen' must keep its shape.*\(0, 8\) and then \(4, 8\)"),
    ],
)
def test_a_model_that_clients_cannot_share_is_refused(model: Any, message: str) -> None:
    with pytest.raises(ft.ModelError, match=message):
        run(model)


def test_the_trial_leaves_the_weights_as_they_are() -> None:
    torch.manual_seed(0)
    model = Two()
    before = [(p.data_ptr(), p.clone()) for p in model.parameters()]
    run(model, rounds=1)  # type: ignore[arg-type]
    after = [(p.data_ptr(), p) for p in model.parameters()]
    assert all(old == new and torch.equal(a, b) for (old, a), (new, b) in zip(before, after, strict=True))


def test_the_trial_leaves_the_rows_as_they_are() -> None:
    data = clients()
    before = data.columns["x"].copy()
    with pytest.raises(ft.ModelError, match="a write into 'x'"):
        run(WritesItsInputs, data=data)
    assert (data.columns["x"] == before).all()
