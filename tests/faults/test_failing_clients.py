"""Clients that fail at the matrix's rates: the run finishes, says what it lost, and the model is as good."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.deploy.blueprint import blueprint_of
from fedtempo.deploy.gate import upload_form
from fedtempo.deploy.server import Plan, serve_run
from fedtempo.deploy.wire import upload_from_bytes, upload_to_bytes
from fedtempo.training.prepare import prepare
from tests.e2e.deploy.wires import Wires, nodes_of
from tests.faults.digits_problem import ADMISSION, accuracy, settings, train, without_faults


@pytest.mark.slow("sixty rounds each; test_admission has 25 rounds with dropouts every time")
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_dropouts_cost_at_most_two_points(share: float) -> None:
    result = train(faults=ft.Faults(drop=share), admission=ADMISSION)
    assert len(result.history) == 60
    assert abs(accuracy(result) - accuracy(without_faults())) <= 0.02
    assert share > 0.3 or not any(report.abandoned for report in result.history)


@pytest.mark.slow("sixty rounds of forty steps")
@pytest.mark.parametrize("share", [0.7, 0.9])
def test_heavy_dropouts_abandon_exactly_the_rounds_below_quorum(share: float) -> None:
    """At 90 % five rounds of sixty are left: clients that work long enough get the model almost there in five."""
    result = train(faults=ft.Faults(drop=share), algorithm=ft.algorithms.fedavg(lr=0.3, steps=40))
    assert len(result.history) == 60
    for report in result.history:
        assert len(report.clients) + len(report.failures) == 10
        assert report.abandoned == (len(report.clients) < 3)
    assert 0 < sum(report.abandoned for report in result.history) < 60
    assert accuracy(result) >= accuracy(without_faults(steps=40)) - 0.10


def test_nobody_for_five_rounds_leaves_the_model_alone_and_it_recovers() -> None:
    reports, params = ft.train(**settings(faults=ft.Faults(drop=1.0, until=5), rounds=40)), []
    while True:
        try:
            report = next(reports)
        except StopIteration as stop:
            result: ft.Result = stop.value
            break
        params.append(report.params)
        assert report.abandoned == (report.round < 5)
        assert not report.abandoned or math.isnan(report.loss)
    first = result.experiment.first_shared
    for shared in params[:5]:
        assert all(torch.equal(shared[name], value) for name, value in first.items())
    assert accuracy(result) >= accuracy(without_faults()) - 0.03


@pytest.mark.slow("sixty rounds")
def test_the_same_clients_that_always_drop_are_named(tmp_path: Path) -> None:
    """Six of twenty nodes never answer an order: the run ends without them and its summary lists them."""
    blueprint = blueprint_of(prepare(**settings(rounds=20, backend="serial", evaluation=None)))
    silent = {7 * part + 1 for part in (0, 3, 6, 9, 12, 15)}
    wires = Wires(nodes_of(blueprint, 20, tmp_path))
    wires.spoil = lambda node, kind, parts: None if kind == "train" and node in silent else parts
    result = serve_run(wires, blueprint, Plan(out=tmp_path / "run"))
    assert len(result.history) == 20
    assert result.never_heard == [0, 3, 6, 9, 12, 15]
    assert not any(report.abandoned for report in result.history)
    assert '"never_heard": [\n    0,\n    3,' in (tmp_path / "run" / "summary.json").read_text()


def test_nobody_is_named_who_was_heard_once() -> None:
    some = train(faults=ft.Faults(drop=0.5), rounds=12, evaluation=None)
    assert some.never_heard == [10], "the only one that dropped out whenever it was asked"
    assert all(report.abandoned for report in some.history if 10 in report.clients)
    nobody = train(faults=ft.Faults(drop=1.0), rounds=2, evaluation=None)
    assert nobody.never_heard == sorted({f.client for report in nobody.history for f in report.failures})


KINDS = ["drop", "nan", "infinite", "huge", "misshapen", "renamed"]


@pytest.mark.slow("24 pairs of runs; test_admission has smaller ones every time")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_bitwise_as_if_they_had_not_been_asked(kind: str, share: float, backend: str) -> None:
    common = {"rounds": 3, "backend": backend, "evaluation": None, **({"workers": 2} if backend == "processes" else {})}
    bad = train(faults=ft.Faults(**{kind: share}), admission=ft.Admission(max_norm=50.0), **common)
    assert any(report.failures for report in bad.history)
    clean = train(cohorts=[list(report.clients) for report in bad.history], **{**common, "backend": "serial"})
    assert bad.digest() == clean.digest()


@pytest.mark.slow("six pairs of runs; test_admission has smaller ones every time")
@pytest.mark.parametrize("kind", KINDS)
def test_side_by_side_as_if_they_had_not_been_asked(kind: str) -> None:
    """Lanes next to each other are rounded together, so side by side it is 1e-12 and not the bits."""
    common = {"rounds": 3, "dtype": torch.float64, "evaluation": None}
    bad = train(faults=ft.Faults(**{kind: 0.3}), admission=ft.Admission(max_norm=50.0), **common)
    clean = train(cohorts=[list(report.clients) for report in bad.history], **common)
    assert any(report.failures for report in bad.history)
    for name, value in clean.params.items():
        torch.testing.assert_close(bad.params[name], value, rtol=0, atol=1e-12)


def spoken_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy as a user writes it."""
    return torch.nn.functional.cross_entropy(output, target, reduction="none")


def silent_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy whose value, not its gradient, is NaN for rows of class 3."""
    loss = spoken_loss(output, target)
    return loss + torch.where(target == 3, float("nan"), 0.0).to(loss.dtype)


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_a_loss_that_is_nan_does_not_cost_the_update(backend: str) -> None:
    rng = np.random.default_rng(0)
    rows = [
        (rng.standard_normal((8, 6)), np.full(8, 3) if client in (1, 2) else rng.integers(0, 3, 8))
        for client in range(6)
    ]
    common: dict[str, Any] = {
        "model": ft.models.mlp(6, [5], 4),
        "data": ft.data.FederatedData.from_clients(rows),
        "algorithm": ft.algorithms.fedavg(lr=0.1, steps=2),
        "rounds": 2,
        "evaluation": None,
        "backend": backend,
    }
    told, plain = ft.run(**common, loss=silent_loss), ft.run(**common, loss=spoken_loss)
    assert told.digest() == plain.digest(), "the updates count all the same"
    for report in told.history:
        assert math.isfinite(report.loss)
        assert report.measurements["losses_left_out"] == 2
        assert report.failures == ()
    others = ft.run(**{**common, "rounds": 1}, cohorts=[[0, 3, 4, 5]])
    assert told.history[0].loss == pytest.approx(others.history[0].loss, rel=1e-6), (
        "the mean is that of the losses that are known"
    )


def test_weights_of_nothing_move_nothing_without_a_division(tmp_path: Path) -> None:
    """Every client says that it has processed nothing: no upload weighs anything, and nothing is divided by zero."""
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=2, weighting="processed")
    given = prepare(**settings(rounds=2, backend="serial", evaluation=None, algorithm=algorithm))
    blueprint, form = blueprint_of(given), upload_form(given.federation)

    def weightless(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        if kind != "train":
            return parts
        uploads = [upload_from_bytes(part, form.layout, form.expected) for part in parts]
        return [upload_to_bytes(replace(upload, weight=0.0)) for upload in uploads]

    result = serve_run(Wires(nodes_of(blueprint, 2, tmp_path), weightless), blueprint, Plan())
    for report in result.history:
        assert not report.abandoned and not report.failures
    assert all(torch.equal(result.params[name], value) for name, value in given.first_shared.items())
