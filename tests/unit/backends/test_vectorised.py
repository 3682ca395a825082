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


class Words(nn.Module):
    """The mean of a row's words."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors, self.last = nn.Embedding(6, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.vectors(x).mean(1))


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("index", [9, -1])
def test_an_index_out_of_range_names_its_client(index: int, part: str, backend: str) -> None:
    """Side by side torch took the row of another client's table instead, and training and scores went on."""
    draw = np.random.default_rng(0)
    rows = {
        each: [(draw.integers(0, 6, size=(8, 4)), np.arange(8) % 3) for _ in range(8)] for each in ("train", "test")
    }
    rows[part][3][0][5, 2] = index
    names = [f"ward {number}" for number in range(8)]
    data = ft.data.FederatedData.from_clients(rows["train"], test=rows["test"], names=names)
    with pytest.raises(ft.TrainingError, match=r"client 3 \(ward 3\).*IndexError: index out of range"):
        ft.run(model=Words, data=data, algorithm=FIVE, rounds=1, backend=backend, workers=1, progress=False)


def test_clients_that_fail_only_side_by_side_are_named_together() -> None:
    """One by one they all train, so none of them is to blame."""

    class Counts(Words):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] == 5:  # rows of the largest client, to which the other is padded
                assert not torch._C._functorch.is_functorch_wrapped_tensor(x), "not side by side"
            return super().forward(x)

    data = ft.data.FederatedData.from_clients([(np.zeros((n, 4), np.int64), np.arange(n) % 3) for n in (2, 3, 5)])
    settings = {"data": data, "algorithm": FIVE, "rounds": 1, "batch_size": None, "evaluation": None, "workers": 1}
    assert ft.run(model=Counts, backend="serial", **settings).history
    with pytest.raises(ft.TrainingError, match="clients 0 to 2, round 0, side by side: AssertionError: not side by"):
        ft.run(model=Counts, backend="vectorised", **settings)
