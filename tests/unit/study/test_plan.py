"""The plan: what differs between contestants is refused, and what is written stays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.errors import ConfigError, OutputError
from fedtempo.study.kept_plan import PLAN
from fedtempo.study.plan import Budget, FairPlan, make_plan
from fedtempo.study.tunable import FromFunction, Tunable, from_functions


@pytest.fixture(scope="module")
def tunables(digits: ft.data.FederatedData) -> list[Tunable]:
    makers = {"a": lambda lr: ft.algorithms.fedavg(lr=lr, steps=2), "b": ft.algorithms.fedsgd(lr=0.1)}
    settings = {"model": ft.models.softmax_regression(64, 10), "data": digits, "rounds": 40}
    return from_functions(makers, {}, settings)


@pytest.fixture(scope="module")
def plan(tunables: list[Tunable]) -> FairPlan:
    return make_plan(tunables, Budget(trials=3), first_seed=5)


def test_the_plan_says_everything_before_the_first_run(plan: FairPlan) -> None:
    assert plan.seeds == (5, 6, 7, 8, 9) and plan.tuning_seeds == (1_000_005, 1_000_006)
    assert (plan.rounds, plan.tuning_rounds, plan.every, plan.patience) == (40, 40, 2, 5)
    assert (plan.margin, plan.converged_within, plan.reference) == (0.01, 0.005, "a")
    assert plan.claims == (("b", "a", "existing"), ("b", "a", "new"))
    assert len(plan.contestants["a"]["points"]) == 3 and plan.contestants["b"]["points"] == [{}]
    words = " ".join(plan.in_words())
    assert "a: 3 trials of lr 0.01 to 3" in words and "b: nothing is tuned" in words
    assert "asked, for existing and new users: b > a" in words


def test_a_written_plan_stays(plan: FairPlan, tmp_path: Path) -> None:
    plan.write(tmp_path)
    stored = (tmp_path / PLAN).read_text()
    assert json.loads(stored) == plan.as_dict()
    plan.write(tmp_path)
    others: dict[str, Any] = {
        "seeds": (0, 1),
        "margin": 0.02,
        "claims": plan.claims[:1],
        "experiment": {**plan.experiment, "cohort": "all"},
        "contestants": {**plan.contestants, "b": {**plan.contestants["b"], "points": [{"lr": 1.0}]}},
    }
    for field, value in others.items():
        with pytest.raises(OutputError, match=f"a plan must not change once it is written: .* {field}"):
            replace(plan, **{field: value}).write(tmp_path)
    assert (tmp_path / PLAN).read_text() == stored
    (tmp_path / PLAN).write_text("[]")
    with pytest.raises(OutputError, match=r"whose plan\.json can be read"):
        plan.write(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"), [("rounds", 41), ("evaluation", ft.Evaluation(lr=0.5)), ("metric", "balanced_accuracy")]
)
def test_contestants_share_what_they_are_judged_by(tunables: list[Tunable], field: str, value: Any) -> None:
    first, second = tunables
    assert isinstance(second.make, FromFunction)
    other = replace(second, make=replace(second.make, settings={**second.make.settings, field: value}))
    with pytest.raises(ConfigError, match=r"must be the same for all contestants\. Got .* for a and .* for b"):
        make_plan([first, other], Budget())


def test_data_without_a_validation_part_are_refused() -> None:
    data = ft.data.load("digits").split(ft.data.dirichlet(clients=6, alpha=1.0), seed=0, validation=0.0)
    settings = {"model": ft.models.softmax_regression(64, 10), "data": data, "rounds": 8}
    makers = {"a": ft.algorithms.fedsgd(lr=0.1), "b": ft.algorithms.fedsgd(lr=0.2)}
    with pytest.raises(ConfigError, match="a validation part of the data must be given"):
        make_plan(from_functions(makers, None, settings), Budget())
