"""What makes training fast changes nothing: layouts, steps written in place, many clients counted at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests import zoo
from torch import nn

import fedtempo as ft
from fedtempo.backends import block_size, choose, row_by_row, serial, vectorised
from fedtempo.contracts import distance
from fedtempo.costs import Costs, Ledger
from fedtempo.data.batches import Batching, BatchRows
from fedtempo.params import Params, all_finite
from fedtempo.randomness import client_keys
from fedtempo.schedules import Position
from fedtempo.transforms import Transform


def run(kind: str, name: str, **settings: Any) -> ft.Result:
    defaults = {"rounds": 3, "cohort": 4, "batch_size": 4, "seed": 1, "evaluation": None, "dtype": torch.float64}
    algorithm = zoo.ALGORITHMS[name]
    return ft.run(model=zoo.model(kind), data=zoo.data(kind), algorithm=algorithm, **{**defaults, **settings})


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedexp", "fedper", "ditto", "fedem", "local only", "fednar"])
def test_channels_last_changes_nothing(name: str) -> None:
    assert distance(run("cnn", name, backend=serial), run("cnn", name, backend=row_by_row)) <= 1e-12


def test_a_model_without_images_has_one_layout() -> None:
    assert run("mlp", "fedavg", backend=serial).digest() == run("mlp", "fedavg", backend=row_by_row).digest()


def test_results_are_laid_out_row_by_row() -> None:
    result = run("cnn", "ditto", backend=serial)
    states = [result.params, *(result.client_state(c) for c in range(len(result.experiment.federation.problem.data)))]
    assert all(t.is_contiguous() for state in states for t in state.values())


def test_a_transform_may_keep_the_parameters_it_sees() -> None:
    """Steps write over parameters that nobody else holds; here somebody does."""

    def remembering(copies: bool) -> Transform:
        def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
            previous = state["previous"]
            direction = {n: g + 0.1 * (params[n] - previous[n]) for n, g in gradient.items()}
            return direction, {"previous": {n: p.clone() if copies else p for n, p in params.items()}}

        return Transform(lambda params: {"previous": dict(params)}, update)

    algorithm = zoo.ALGORITHMS["fedavg"]
    results = []
    for copies in (True, False):
        phases = tuple(replace(phase, direction=remembering(copies)) for phase in algorithm.phases)
        changed = replace(algorithm, phases=phases)
        settings = {"rounds": 2, "batch_size": 4, "backend": "serial", "evaluation": None}
        results.append(ft.run(model=zoo.model("mlp"), data=zoo.data("mlp"), algorithm=changed, **settings))
    assert results[0].digest() == results[1].digest()


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.last = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.last(self.second(torch.tanh(self.first(x))))
        return output


def test_tied_weights_stay_tied() -> None:
    torch.manual_seed(0)
    model = Tied()
    settings = {"rounds": 1, "cohorts": [[0]], "batch_size": None, "evaluation": None, "backend": "serial"}
    settings |= {"init": "model", "dtype": torch.float64}
    result = ft.run(model=model, data=zoo.data("mlp"), algorithm=ft.algorithms.fedsgd(lr=0.1), **settings)
    twin = model.double()
    rows = zoo.data("mlp").client(0, dtype=torch.float64)
    torch.nn.functional.cross_entropy(twin(rows["x"]), rows["y"]).backward()
    for name, parameter in twin.named_parameters():
        assert torch.allclose(result.params[name], parameter - 0.1 * parameter.grad, atol=1e-14, rtol=0)


@pytest.mark.parametrize("batching", [Batching(4), Batching(4, "replace"), Batching(None)])
def test_one_client_draws_what_it_draws_in_a_group(batching: Batching) -> None:
    clients, sizes = np.arange(5), np.array([7, 12, 4, 9, 1])
    group = BatchRows(batching, client_keys(0, clients, "batches", 2), sizes)
    for client, size in zip(clients, sizes, strict=True):
        alone = BatchRows(batching, client_keys(0, clients[client : client + 1], "batches", 2), np.array([size]))
        for step in range(7):
            rows, counts = group.at(step)
            assert alone.of_first(step).tolist() == rows[client, : counts[client]].tolist()


def test_a_ledger_counts_clients_of_one_size_at_once() -> None:
    result = run("mlp", "fedrep", backend=serial)
    federation = result.experiment.federation
    ledger = Ledger(federation, result.params, {})
    one_by_one = sum((ledger.clients([client], result.now) for client in (0, 1, 2, 0, 0)), Costs())
    assert ledger.clients([0, 1, 2, 0, 0], result.now) == one_by_one


def test_a_sum_that_overflows_is_still_finite() -> None:
    assert all_finite([torch.full((4,), 3e38)])
    assert all_finite([torch.full((4,), 1e308, dtype=torch.float64), torch.arange(3)])
    assert not all_finite([torch.zeros(3), torch.tensor([1.0, float("inf"), float("-inf")])])
    assert not all_finite([torch.tensor([float("nan")])])


def test_blocks_depend_on_the_model_alone() -> None:
    assert block_size(610, vectorised) == 512
    assert block_size(159_010, vectorised) == 12
    assert block_size(159_010, serial) == block_size(10_000_000, serial) == 1
    assert block_size(610, serial) == 64


def test_auto_looks_at_the_model_and_leaves_workers_to_calibration() -> None:
    small, large, images = nn.Linear(60, 10), nn.Linear(2000, 500), ft.models.cnn((1, 28, 28), 10)
    assert choose("auto", None, None, small, cohort=10.0) == (vectorised, 1, 512, False)
    assert choose("auto", None, None, images, cohort=2.0).backend is serial
    long = choose("auto", None, None, large, cohort=10.0)
    assert (long.backend, long.block) == (serial, 1) and long.calibrates == (long.workers > 1)
    assert choose("auto", 1, None, large, cohort=10.0) == (serial, 1, 1, False)
    assert choose("serial", None, None, large, cohort=10.0) == (serial, 1, 1, False)
    assert choose("vectorised", 3, 7, large, cohort=1.0) == (vectorised, 3, 7, False)
    assert str(choose("vectorised", 3, 7, large, 1.0)) == "vectorised code in 3 processes, 7 clients to a block"
