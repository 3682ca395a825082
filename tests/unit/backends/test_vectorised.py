"""Clients side by side: what is done once for many steps."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.federation.problem import Problem

FIVE = ft.algorithms.fedavg(lr=0.1, steps=5)
PLAIN, DROPS = nn.Linear(3, 2), nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2))


@pytest.mark.parametrize(
    ("model", "settings", "gathers"),
    [
        (PLAIN, {"batch_size": None}, 1),
        (PLAIN, {"batch_size": 4}, 5),
        (DROPS, {"batch_size": None}, 10),  # clients of one size at a time
        (PLAIN, {"batch_size": None, "augment": ft.data.augment.noise(0.1)}, 5),
    ],
    ids=["all rows", "batches", "masks are drawn", "noise is drawn"],
)
def test_a_batch_of_all_rows_is_gathered_once(
    model: nn.Module, settings: dict, gathers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    gather = Problem.rows
    monkeypatch.setattr(Problem, "rows", lambda self, *args: calls.append(1) or gather(self, *args))
    draw = np.random.default_rng(0)
    clients = [(draw.standard_normal((rows, 3)).astype(np.float32), np.arange(rows) % 2) for rows in (6, 6, 4)]
    given = {"data": ft.data.FederatedData.from_clients(clients), "algorithm": FIVE, "rounds": 1, "evaluation": None}
    together = ft.run(model=model, backend="vectorised", workers=1, block=3, dtype=torch.float64, **given, **settings)
    assert len(calls) == gathers
    one_by_one = ft.run(model=model, backend="serial", workers=1, dtype=torch.float64, **given, **settings)
    for name, tensor in together.last.shared.items():
        np.testing.assert_allclose(tensor, one_by_one.last.shared[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("rate", "apart"),
    [(0.1, 0), (ft.schedules.per_round(0.1, 0.9), 0), (lambda now: 0.01 * now.samples, 5)],
    ids=["one rate", "one rate a round", "a rate for each size"],
)
def test_clients_of_different_sizes_step_as_one_stack_where_their_rates_are_equal(
    rate: object, apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    side_by_side = import_module("fedtempo.backends.vectorised")  # the package has a backend of this name
    by_lane, calls = side_by_side.vmap, []
    monkeypatch.setattr(side_by_side, "vmap", lambda *args: calls.append(1) or by_lane(*args))
    draw = np.random.default_rng(0)
    clients = [(draw.standard_normal((rows, 3)).astype(np.float32), np.arange(rows) % 2) for rows in (6, 6, 4)]
    given = {
        "data": ft.data.FederatedData.from_clients(clients),
        "model": PLAIN,
        "algorithm": ft.algorithms.fedavg(lr=rate, steps=5),
        "rounds": 1,
        "evaluation": None,
        "dtype": torch.float64,
        "workers": 1,
    }
    together = ft.run(backend="vectorised", block=3, **given)
    assert len(calls) == apart
    one_by_one = ft.run(backend="serial", **given)
    for name, tensor in together.last.shared.items():
        np.testing.assert_allclose(tensor, one_by_one.last.shared[name], rtol=1e-12, atol=1e-12)


class Branches(nn.Linear):
    """Its way depends on a number, which `vmap` cannot follow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x if x.sum() > 0 else -x)


def test_a_model_that_cannot_run_side_by_side_is_one_line_that_says_what_to_change() -> None:
    clients = [(np.ones((4, 3), dtype=np.float32), np.arange(4) % 2) for _ in range(2)]
    data = ft.data.FederatedData.from_clients(clients)
    with pytest.raises(ft.TrainingError, match=r"on the data in forward, test_.*\. backend='serial'") as caught:
        ft.run(model=Branches(3, 2), data=data, algorithm=FIVE, rounds=1, evaluation=None, backend="vectorised")
    assert len(str(caught.value)) < 200
