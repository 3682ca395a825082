"""What makes training fast changes nothing: layouts, steps written in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.backends import plain_serial, serial
from fedtempo.client import local_step, overwriting
from fedtempo.client.local_step import is_elementwise
from fedtempo.client.program import Stage
from fedtempo.client.transforms import Transform
from fedtempo.contracts import distance
from fedtempo.params import Params, subtract
from fedtempo.schedules import Position
from tests import zoo
from tests.slow import slow_but


def run(kind: str, name: str, **settings: Any) -> ft.Result:
    defaults = {"rounds": 3, "cohort": 4, "batch_size": 4, "seed": 1, "evaluation": None, "dtype": torch.float64}
    algorithm = zoo.ALGORITHMS[name]
    return ft.run(model=zoo.model(kind), algorithm=algorithm, **{"data": zoo.data(kind), **defaults, **settings})


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedexp", "fedper", "ditto", "fedem", "local only", "fednar"])
def test_channels_last_changes_nothing(name: str) -> None:
    assert distance(run("cnn", name, backend=serial), run("cnn", name, backend=plain_serial)) <= 1e-12


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
    assert run("mlp", "fedavg", backend=serial).digest() == run("mlp", "fedavg", backend=plain_serial).digest()


def test_results_are_laid_out_row_by_row() -> None:
    result = run("cnn", "ditto", backend=serial)
    states = [result.params, *(result.client_state(c) for c in range(len(result.experiment.federation.problem.data)))]
    assert all(t.is_contiguous() for state in states for t in state.values())


@pytest.mark.parametrize("name", slow_but(zoo.MECHANISMS, zoo.ALGORITHMS, "every method's steps, twice"))
@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_steps_that_overwrite_nothing_have_the_same_bits(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"backend": backend, "rounds": 2, "dtype": torch.float32}
    overwritten = run("mlp", name, **settings)
    asked: list[int] = []
    monkeypatch.setattr(overwriting, "allowed", lambda step: bool(asked.append(step)))
    assert run("mlp", name, **settings).digest() == overwritten.digest()
    assert asked


@pytest.mark.parametrize("place", ["scratch", "personal"])
@pytest.mark.parametrize("optimizer", [ft.optimizers.sgd(), ft.optimizers.sgd(0.5)])
def test_a_hook_may_keep_the_weights_of_a_step(place: str, optimizer: Any) -> None:
    """It keeps y_(K-1) without a copy and uploads it: the last step must not be written over it."""

    def keeping(copies: bool) -> ft.Algorithm:
        def begin(received, personal):
            note = {f"{when}/{name}": t for when in ("last", "note") for name, t in received.shared.items()}
            return (personal, note) if place == "scratch" else ({**personal, **note}, {})

        def after(carry, step, received, now):
            earlier = {f"last/{n.removeprefix('note/')}": t for n, t in getattr(carry, place).items() if "note" in n}
            notes = {f"note/{n}": t.clone() if copies else t for n, t in step.after.items()}
            return carry._replace(**{place: {**earlier, **notes}})

        def upload(received, carry):
            last = {n.removeprefix("last/"): t for n, t in getattr(carry, place).items() if "last" in n}
            return {"delta": subtract(last, received.shared)}

        plain = ft.algorithms.fedavg(lr=0.1, steps=4, optimizer=optimizer)
        phases = tuple(replace(p, on="shared").hooked(ft.Hook(after=after, reads_start=False)) for p in plain.phases)
        memory = ft.Memory(begin=begin, final_state=lambda received, carry: {})
        return replace(plain, phases=phases, memory=memory, uploads=ft.Uploads(upload))

    settings = {"rounds": 2, "batch_size": 4, "dtype": torch.float64, "evaluation": None, "model": zoo.model("mlp")}
    results = [
        ft.run(algorithm=keeping(copies), data=zoo.data("mlp"), backend=backend, **settings)
        for copies, backend in ((True, "serial"), (False, "serial"), (False, "vectorised"))
    ]
    assert results[0].digest() == results[1].digest()
    assert distance(results[0], results[2]) < 1e-12


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


OPTIMIZERS = {
    "decay": ft.optimizers.sgd(weight_decay=0.03),
    "momentum": ft.optimizers.sgd(0.9, state="keep"),
    "nesterov": ft.optimizers.sgd(0.9, nesterov=True, weight_decay=0.03, state="average"),
    "adam": ft.optimizers.adam(weight_decay=0.03),
    "adamw": ft.optimizers.adamw(state="keep"),
    "averaged adamw": ft.optimizers.adamw(state="average"),
}
ONE_PASS = {
    **{name: ft.algorithms.fedavg(0.05, 4, optimizer=optimizer) for name, optimizer in OPTIMIZERS.items()},
    "fednar, never clipped": ft.algorithms.fednar(ft.algorithms.fedavg(0.1, 4), weight_decay=0.1, max_norm=100.0),
    "fednar, clipped at times": ft.algorithms.fednar(ft.algorithms.fedavg(0.1, 4), weight_decay=0.1, max_norm=0.8),
    "fednar, always clipped": ft.algorithms.fednar(ft.algorithms.scaffold(0.1, 4), weight_decay=0.1, max_norm=0.1),
    "the other order": ft.algorithms.clip_then_decay(ft.algorithms.fedavg(0.1, 4), weight_decay=0.1, max_norm=0.8),
    "clipped adamw": ft.algorithms.diloco(0.05, 4, max_norm=0.8),
}
SAME_BITS = {name for name in ONE_PASS if name == "decay" or name.startswith(("fednar", "the other"))}


def _noted(taken: list[bool], found: Any) -> Any:
    taken.append(found is not None)
    return found


CASES = [(kind, name) for kind in ("mlp", "cnn") for name in ONE_PASS]
OFTEN = [(kind, name) for kind, name in CASES if kind == "cnn" or name in ("nesterov", "fednar, clipped at times")]


@pytest.mark.parametrize("case", slow_but(OFTEN, CASES, "each runs every time on weights of another layout"))
def test_a_step_in_one_pass_is_the_step_in_several(case: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    kind, name = case
    settings: dict[str, Any] = {"rounds": 2, "cohort": 3, "batch_size": 4, "seed": 1, "evaluation": None}

    def train(dtype: torch.dtype) -> ft.Result:
        data = {"data": zoo.data(kind), "algorithm": ONE_PASS[name], "dtype": dtype, "backend": "serial"}
        return ft.run(model=zoo.model(kind), **data, **settings)

    taken: list[bool] = []
    take = local_step._in_one_pass
    monkeypatch.setattr(local_step, "_in_one_pass", lambda *given: _noted(taken, take(*given)))
    long, short = train(torch.float64), train(torch.float32)
    assert any(taken) == (name != "fednar, always clipped")
    monkeypatch.setattr(local_step, "_one_pass_of", lambda phase: None)
    assert distance(long, train(torch.float64)) <= 1e-12
    others = train(torch.float32)
    assert name not in SAME_BITS or others.digest() == short.digest()
    counted = [[report.measurements.get("clipped_steps") for report in result.history] for result in (short, others)]
    assert counted[0] == counted[1]


@pytest.mark.parametrize("able", [True, False])
def test_an_optimizer_of_ones_own_may_bring_its_kernel(able: bool) -> None:
    """Where the kernel returns None, `update` takes the step; the numbers are the same."""
    taken: list[float] = []

    def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
        return {n: torch.sign(g) for n, g in gradient.items()}, state

    def step(gradient: Params, decay: float, state: Any, params: Params, now: Position, rate: float) -> Any:
        taken.append(decay)
        if not able:
            return None
        for name, g in gradient.items():
            params[name].sub_(torch.sign(g + decay * params[name]), alpha=rate)
        return state

    def trained(**kernel: Any) -> ft.Result:
        signs = ft.optimizers.Optimizer(ft.Transform(lambda params: (), update, **kernel), name="signs")
        algorithm = ft.algorithms.fednar(
            ft.algorithms.fedavg(0.01, 3, optimizer=signs), weight_decay=0.1, max_norm=100.0
        )
        settings: dict[str, Any] = {"rounds": 2, "batch_size": 4, "backend": "serial", "evaluation": None}
        return ft.run(model=zoo.model("mlp"), data=zoo.data("mlp"), algorithm=algorithm, **settings)

    assert trained(one_pass=step).digest() == trained().digest()
    assert taken.count(0.1) > 2 and len(set(taken)) == 3, "the decay of the run; two others are the trial's before it"


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
        assert torch.allclose(result.params[name], parameter - 0.1 * parameter.grad, atol=1e-12, rtol=0)
