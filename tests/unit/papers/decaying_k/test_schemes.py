"""The schemes' costs and claims: on a run on digits and on numbers made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fedtempo as ft
from fedtempo.papers.decaying_k.data import FEMNIST, SHAKESPEARE, STACKOVERFLOW
from fedtempo.papers.decaying_k.schemes import (
    AT_STEPS,
    AT_STOP,
    BEST,
    CONSTANT,
    EARLY,
    ERROR,
    SCHEMES,
    SIZES,
    STEPS,
    TO_TARGET,
    VALIDATION,
    label,
    step_costs,
    trajectory,
)
from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.definitions import Data, Measured, Model
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import verdicts
from fedtempo.papers.framework.reproduction import Reproduction


def trained() -> ft.Result:
    return ft.run(
        model=Model("softmax_regression", {"inputs": 64, "outputs": 10}).maker(None),
        data=Data("digits", ft.data.dirichlet(5, 1.0), 0, {"validation": 0.2, "test": 0.2}, rows=300).load(None),
        algorithm=ft.algorithms.fedavg(0.3, 3),
        rounds=6,
        cohort=2,
        batch_size=16,
        seed=1,
        evaluation=ft.Evaluation(every=2, steps=0),
    )


def test_the_best_score_is_the_test_score_of_the_selected_round_and_costs_count_to_it() -> None:
    result = trained()
    measured = trajectory(result, first_k=3)
    assert result.selected is not None
    assert result.selected.test is not None
    test = result.selected.test.existing_before.summary("accuracy")["weighted_mean"]
    curve = measured.curves["score"]
    assert measured.values[BEST] == test
    assert measured.values[VALIDATION] in curve.y
    costs = step_costs(result, target=max(curve.y), most=1000).values
    assert costs[AT_STOP] == costs[TO_TARGET] == 6 * curve.x[curve.y.index(max(curve.y))]
    assert step_costs(result, target=2.0, most=1000).values[TO_TARGET] == 1000


def test_a_rate_that_is_tuned_for_a_label_goes_to_it_alone() -> None:
    scale = SHAKESPEARE.scales["medium"]
    tuned = replace(scale, chosen={label("low K", CONSTANT): 0.25, label("low K", STEPS): 0.125})
    made = {run.label: repr(run) for run in SHAKESPEARE.runs(tuned, 0)}
    assert "fedavg(lr=0.25, steps=10" in made[label("low K", CONSTANT)]
    assert "lr=0.125" in made[label("low K", STEPS)]
    assert "fedavg(lr=1.0, steps=33" in made[label("middle K", CONSTANT)]


@pytest.mark.parametrize("reproduction", [FEMNIST, SHAKESPEARE, STACKOVERFLOW])
def test_every_scheme_of_a_k_has_the_same_candidates(reproduction: Reproduction) -> None:
    tuning = reproduction.scales["medium"].tuning
    assert tuning is not None
    assert set(tuning.contestants) == {label(size, scheme) for size in SIZES for scheme in SCHEMES}
    for size in SIZES:
        assert len({tuning.contestants[label(size, scheme)].values for scheme in SCHEMES}) == 1


@pytest.mark.parametrize(("lost", "answer"), [(0.005, Answer.HOLDS), (0.02, Answer.FAILS)])
def test_a_point_less_is_as_good_and_cost_is_what_was_spent(lost: float, answer: Answer) -> None:
    def measured(size: str, scheme: str, seed: int) -> Measured:
        decayed = scheme == STEPS
        values = {
            BEST: 0.8 - lost * decayed - 0.02 * (size == "high K"),
            EARLY: 0.5 + 0.1 * SIZES.index(size),
            AT_STEPS: 0.7 + 0.05 * decayed,
            ERROR: 0.5 - 0.1 * SIZES.index(size),
            AT_STOP: 1000.0 - 500 * decayed,
            TO_TARGET: 800.0 + 100 * decayed,
        }
        return Measured({name: value * (1 + seed / 1e5) for name, value in values.items()})

    rows = {
        label(size, scheme): tuple(measured(size, scheme, seed) for seed in range(3))
        for size in SIZES
        for scheme in SCHEMES
    }
    found = {text: one.answer for text, one in verdicts(FEMNIST, Outcome("medium", FEMNIST.columns, rows)).items()}
    assert found["low K: decaying K reaches constant K's score, less a point."] == answer
    assert {one for text, one in found.items() if "target score" in text} == {Answer.FAILS}
    assert {one for text, one in found.items() if "early stop" in text} == {Answer.HOLDS}
    assert found["Higher constant K ends at lower accuracy."] == Answer.HOLDS
