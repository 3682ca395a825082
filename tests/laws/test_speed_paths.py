"""What makes training fast changes nothing: layouts, steps written in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.backends import row_by_row, serial
from fedtempo.client.local_step import is_elementwise
from fedtempo.client.program import Stage
from fedtempo.client.transforms import Transform
from fedtempo.contracts import distance
from fedtempo.params import Params
from fedtempo.schedules import Position
from tests import zoo


def run(kind: str, name: str, **settings: Any) -> ft.Result:
    defaults = {"rounds": 3, "cohort": 4, "batch_size": 4, "seed": 1, "evaluation": None, "dtype": torch.float64}
    algorithm = zoo.ALGORITHMS[name]
    return ft.run(model=zoo.model(kind), algorithm=algorithm, **{"data": zoo.data(kind), **defaults, **settings})


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedexp", "fedper", "ditto", "fedem", "local only", "fednar"])
def test_channels_last_changes_nothing(name: str) -> None:
    assert distance(run("cnn", name, backend=serial), run("cnn", name, backend=row_by_row)) <= 1e-12


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "feddyn", "fedper", "ditto"])
def test_a_step_on_stacked_clients_is_the_step_of_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of one size step together without `vmap`: the bits are those of each client's step under it."""
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((12, 6)), rng.integers(0, 4, 12)) for _ in range(6)]
    settings = {"backend": "vectorised", "data": ft.data.FederatedData.from_clients(clients), "cohort": 5}
    stacked = run("mlp", name, **settings)
    asked: list[bool] = []
    monkeypatch.setattr(
        Stage, "needs_no_lanes", property(lambda stage: bool(asked.append(is_elementwise(stage.phase))))
    )
    assert run("mlp", name, **settings).digest() == stacked.digest()
    assert any(asked)


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
