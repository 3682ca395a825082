"""`check_model`: the battery for a user's own model finds what it says it finds."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.contracts import ContractError
from fedtempo.errors import ModelError


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 4)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


class Branches(Plain):
    """vmap cannot run it; serial code can."""

    def forward(self, x):
        return super().forward(x) if x.sum() < 1e9 else self.first(x)


class LooksAround(Plain):
    """A row's output depends, a little, on how many rows are beside it: too little for the check before a run."""

    def forward(self, x):
        return super().forward(x) * (1 + 1e-7 * len(x))


class Remembers(Plain):
    """Its output depends on how often it was called."""

    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return super().forward(x) * (1 + 0.001 * type(self).calls)


SIMPLER = pytest.mark.slow("one that branches and one that is made by the run pass every time")
DROPS = ft.models.mlp(6, [5], 4, dropout=0.2)


@pytest.mark.parametrize(
    "model", [Branches(), pytest.param(Plain(), marks=SIMPLER), Plain, pytest.param(DROPS, marks=SIMPLER)]
)
def test_sound_models_pass(model):
    ft.check_model(model)


@pytest.mark.parametrize("model", [LooksAround(), Remembers()])
def test_unsound_models_are_found(model):
    with pytest.raises((ContractError, ModelError)):
        ft.check_model(model)
