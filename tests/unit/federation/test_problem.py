"""A problem that knows more after a trial: what is copied anew and what is kept."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import fedtempo as ft
from fedtempo.data.batches import Batching
from fedtempo.federation.problem import Problem
from fedtempo.tasks import as_task


class Own(nn.Module):
    """A layer in a module of the user's, which may remember what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(x)
        return output


def problem(model: nn.Module) -> Problem:
    rows = np.zeros((4, 3), dtype=np.float32), np.array([0, 1, 0, 1])
    data = ft.data.FederatedData.from_clients([rows])
    return Problem(model, data, as_task("classification", torch.zeros(1, dtype=torch.int64)), Batching(2, "epochs"), 0)


def test_layers_of_torch_are_not_copied_again() -> None:
    first = problem(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    assert not first.network.dropout
    known = first.known_as(draws_masks=True, outputs_are="numbers")
    assert known.network.training is first.network.training
    assert known.network.dropout and known.network.outputs_are == "numbers"
    assert not first.network.dropout and first.network.outputs_are == "classes", "the first one stays as it was"


def test_code_of_the_user_and_hooks_are_copied_again() -> None:
    hooked = nn.Sequential(nn.Linear(3, 2))
    hooked[0].register_forward_hook(lambda *_: None)
    for model in (Own(), hooked):
        first = problem(model)
        tried = first.network.training
        known = first.known_as(draws_masks=True)
        assert known.network.training is not tried
        assert known.network.dropout


def test_a_network_that_nobody_has_asked_for_is_not_made() -> None:
    first = problem(Own())
    assert "network" not in vars(first.known_as(keeps_loss=True)) and "network" not in vars(first)
