"""A bad client costs its own contribution, never the run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.params import Params, add
from fedtempo.server.sums import Aggregate
from tests.slow import slow_but


def run(digits: ft.data.FederatedData, **settings: Any) -> ft.Result:
    defaults = {
        "rounds": 25,
        "cohort": 8,
        "batch_size": 16,
        "seed": 0,
        "backend": "serial",
        "algorithm": ft.algorithms.fedavg(lr=0.2, steps=8),
        "evaluation": ft.Evaluation(every=25, steps=0),
    }
    return ft.run(model=ft.models.mlp(64, [16], 10), data=digits, **{**defaults, **settings})


def accuracy(result: ft.Result) -> float:
    return result.scores.existing_before.summary("accuracy")["mean"]


@pytest.fixture(scope="module")
def sound(digits: ft.data.FederatedData) -> ft.Result:
    return run(digits)


FAULTS = {
    "dropout 10 %": ft.Faults(drop=0.1),
    "dropout 30 %": ft.Faults(drop=0.3),
    "dropout 50 %": ft.Faults(drop=0.5),
    "NaN 10 %": ft.Faults(nan=0.1),
    "NaN 30 %": ft.Faults(nan=0.3),
    "a million times 10 %": ft.Faults(huge=0.1),
    "misshapen 10 %": ft.Faults(misshapen=0.1),
    "renamed 10 %": ft.Faults(renamed=0.1),
}


CASES = [(backend, name) for backend in ("serial", "vectorised") for name in FAULTS]
SIDE_BY_SIDE = ["dropout 30 %", "NaN 10 %", "a million times 10 %", "misshapen 10 %", "renamed 10 %"]
OFTEN = [*(("vectorised", name) for name in SIDE_BY_SIDE), ("serial", "dropout 30 %"), ("serial", "NaN 10 %")]


@pytest.mark.parametrize(
    "case", slow_but(OFTEN, CASES, "every kind of fault runs every time, side by side, and two of them one by one")
)
def test_faulty_clients_cost_little(case: tuple[str, str], digits: ft.data.FederatedData, sound: ft.Result) -> None:
    backend, name = case
    result = run(digits, faults=FAULTS[name], admission=ft.Admission(max_ratio=10.0), quorum=2, backend=backend)
    assert accuracy(result) > accuracy(sound) - 0.04
    assert sum(len(r.failures) for r in result.history) > 0


@pytest.mark.parametrize("backend", ["serial", "vectorised", "processes"])
def test_reasons_are_reported(backend: str, digits: ft.data.FederatedData) -> None:
    faults = ft.Faults(drop=0.2, nan=0.2, misshapen=0.2)
    result = run(digits, faults=faults, rounds=4, backend=backend)
    reasons = {f.reason for r in result.history for f in r.failures}
    assert reasons == {"dropped out", "not finite", "wrong shape"}
    for report in result.history:
        assert not {f.client for f in report.failures} & set(report.clients)


def test_without_checks_one_nan_ends_the_run(digits: ft.data.FederatedData) -> None:
    with pytest.raises(ft.TrainingError, match="not finite"):
        run(digits, faults=ft.Faults(nan=0.3), admission=ft.Admission(checks=False))


ALGORITHMS = {
    "uniform": ft.algorithms.fedavg(lr=0.1, steps=5),
    "by samples": ft.algorithms.fedavg(lr=0.1, steps=5, weighting="samples"),
    "control variates": ft.algorithms.fednar(ft.algorithms.scaffold(lr=0.1, steps=5), weight_decay=0.01, max_norm=1.0),
    "heads": ft.algorithms.fedper(lr=0.1, steps=5),
}


KINDS = ["nan", "huge", "misshapen", "renamed", "infinite", "drop"]
REFUSALS = [(k, name, dtype) for k in KINDS for name in ALGORITHMS for dtype in (torch.float32, torch.float64)]
REFUSED_OFTEN = [
    (kind, name, dtype)
    for kind, name, dtype in REFUSALS
    if (dtype == torch.float32 and kind == "nan") or (dtype == torch.float64 and name == "control variates")
]


@pytest.mark.parametrize("case", slow_but(REFUSED_OFTEN, REFUSALS, "every fault and every algorithm runs every time"))
def test_a_refused_client_leaves_the_run_as_if_it_was_not_chosen(
    case: tuple[str, str, torch.dtype], digits: ft.data.FederatedData
) -> None:
    """Sums are exact, so even the bits are the same."""
    kind, name, dtype = case
    settings = {"rounds": 3, "algorithm": ALGORITHMS[name], "dtype": dtype, "backend": "serial", "evaluation": None}
    bad = run(digits, faults=ft.Faults(**{kind: 0.3}), admission=ft.Admission(max_norm=50.0), **settings)
    assert any(report.failures for report in bad.history)
    clean = run(digits, cohorts=[list(report.clients) for report in bad.history], **settings)
    assert bad.digest() == clean.digest()
    assert [report.loss for report in bad.history] == [report.loss for report in clean.history]


def test_below_quorum_the_round_is_abandoned(digits: ft.data.FederatedData) -> None:
    """Everybody drops out for three rounds: the model keeps its bits; then the planned cohorts go on."""
    result = run(digits, faults=ft.Faults(drop=1.0, until=3), rounds=5, quorum=2)
    assert [r.abandoned for r in result.history] == [True, True, True, False, False]
    first = result.experiment.first_shared
    assert all(torch.equal(result.history[2].params[n], p) for n, p in first.items())
    assert result.history[3].clients == run(digits, rounds=5).history[3].clients


def test_abandoned_rounds_keep_personal_state(digits: ft.data.FederatedData) -> None:
    settings = {"faults": ft.Faults(nan=0.9), "quorum": 8, "rounds": 2}
    result = ft.run(
        model=ft.models.mlp(64, [16], 10),
        data=digits,
        algorithm=ft.algorithms.fedper(lr=0.1, steps=2),
        cohort=8,
        evaluation=None,
        **settings,
    )
    assert all(r.abandoned for r in result.history)
    assert list(result.store.items()) == []


def test_over_selection_meets_the_target(digits: ft.data.FederatedData) -> None:
    result = run(digits, faults=ft.Faults(drop=0.2), over_selection=0.5, cohort=6, rounds=10)
    counts = [len(r.clients) for r in result.history]
    assert max(counts) == 6
    assert np.mean(counts) > 5.5
    alone = run(digits, faults=ft.Faults(drop=0.2), cohort=6, rounds=10)
    assert np.mean([len(r.clients) for r in alone.history]) < np.mean(counts)


def test_a_model_that_is_not_finite_stops_at_the_last_good_round(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    """A server whose step is infinite in round 2: round 1 stays committed; resumed, the run stops there again."""

    def step(shared: Params, state: Any, aggregate: Aggregate, now: ft.Now) -> tuple[Params, Any]:
        return add(shared, aggregate.means["delta"], math.inf if now.round == 2 else 1.0), state

    plain = ft.algorithms.fedavg(lr=0.1, steps=2)
    algorithm = replace(plain, server=plain.server._replace(step=step))
    settings = {"model": ft.models.mlp(64, [8], 10), "data": digits, "algorithm": algorithm, "rounds": 5, "cohort": 4}
    with pytest.raises(ft.TrainingError, match="not finite after round 2"):
        ft.run(**settings, evaluation=None, out=tmp_path)
    with pytest.raises(ft.TrainingError, match="not finite after round 2"):
        next(ft.train(**settings, evaluation=None, out=tmp_path, resume=True))
