"""Compositions: what they are made of, what is compared at equal cost, and how gains are added up."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import fedtempo as ft
from fedtempo.papers.compositions import MNIST
from fedtempo.papers.compositions.ingredients import (
    ADAM,
    ALL,
    CHOSEN,
    FEDDECAY,
    HEADS,
    INGREDIENTS,
    NONE,
    PAIRS,
    STEPS,
    Strengths,
    budgets,
    clipped_share,
    composed,
    most_spent,
    spent_to_target,
)
from fedtempo.papers.compositions.judging import BUDGETS, composition_gains
from fedtempo.papers.framework.budgets import at_budgets
from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.definitions import Curve, Data, Measured, Model, sized
from fedtempo.papers.framework.pages import verdicts
from fedtempo.papers.framework.reproduction import gathered

SCALE = sized(seeds=1, minutes=0, rounds=6, cohort=4, k=5)
STRENGTHS = Strengths(lr=0.1, weight_decay=0.01)
MODEL = Model("mlp", {"inputs": 64, "hidden": [8], "outputs": 10})
DATA = Data("digits", ft.data.dirichlet(10, 0.5), 0, {"new_clients": 2, "min_samples": 3}, rows=400)


def trained(algorithm: ft.algorithms.Algorithm) -> ft.Result:
    return ft.run(
        model=MODEL.maker(None), data=DATA.load(None), algorithm=algorithm, rounds=6, cohort=4, batch_size=16, seed=1
    )


def test_one_run_for_none_for_each_alone_for_every_pair_and_for_all() -> None:
    assert len(CHOSEN) == 1 + 5 + 10 + 1
    assert len({frozenset(chosen) for chosen in CHOSEN.values()}) == len(CHOSEN)


def test_without_ingredients_it_is_fedavg_with_the_baselines_weight_decay() -> None:
    plain = ft.algorithms.clip_then_decay(ft.algorithms.fedavg(0.1, 5), weight_decay=0.01, max_norm=2.0)
    mine, theirs = trained(composed((), STRENGTHS, SCALE)), trained(plain)
    assert all(torch.equal(mine.params[name], theirs.params[name]) for name in theirs.params)


def test_feddecay_among_the_ingredients_is_the_paper_s() -> None:
    paper = ft.algorithms.feddecay(0.1, STRENGTHS.beta, 5)
    plain = ft.algorithms.clip_then_decay(paper, weight_decay=0.01, max_norm=2.0)
    mine, theirs = trained(composed((FEDDECAY,), STRENGTHS, SCALE)), trained(plain)
    assert all(torch.equal(mine.params[name], theirs.params[name]) for name in theirs.params)


def test_budgets_are_what_the_cheapest_runs_spend() -> None:
    spent = budgets(SCALE, MODEL)
    assert trained(composed((STEPS,), STRENGTHS, SCALE)).costs.steps == spent["steps"]
    assert trained(composed((HEADS,), STRENGTHS, SCALE)).costs.bytes == spent["bytes"]


def test_scores_at_a_budget_are_interpolated_between_evaluations() -> None:
    result = trained(composed((), STRENGTHS, SCALE))
    scores = [r.scores.existing_after.summary("accuracy")["mean"] for r in result.history if r.scores]
    steps = 4 * 5
    measured = at_budgets(result, "existing_after", {"steps": 2.5 * steps, "rounds": 100}).values
    assert measured["existing_after/at_steps"] == pytest.approx((scores[1] + scores[2]) / 2)
    assert measured["existing_after/at_rounds"] == scores[-1]


def test_gains_that_add_up_leave_nothing_over() -> None:
    alone = dict(zip(INGREDIENTS, (0.01, 0.02, 0.03, 0.04, 0.05), strict=True))
    values = {
        label: dict.fromkeys(BUDGETS.values(), 0.5 + sum(alone[one] for one in chosen))
        for label, chosen in CHOSEN.items()
    }
    pair = next(iter(PAIRS))
    values[pair] = dict.fromkeys(BUDGETS.values(), 0.5)
    found = composition_gains(values)
    assert found[ALL]["extra_steps"] == pytest.approx(0.0)
    assert found[pair]["extra_bytes"] == pytest.approx(-0.03)
    assert math.isclose(found[INGREDIENTS[4]]["gain_steps"], 0.05)
    assert found[NONE] == {"gain_end": 0.0, "gain_steps": 0.0, "gain_bytes": 0.0}


def test_cost_to_a_target_is_what_was_spent_or_all_that_fedavg_spends() -> None:
    result, most = trained(composed((), STRENGTHS, SCALE)), most_spent(SCALE, MODEL)
    assert most["steps"] == result.costs.steps
    assert most["bytes"] == result.costs.bytes
    first = spent_to_target(result, 0.0, most).values
    assert (first["steps_to_target"], first["bytes_to_target"]) == (4 * 5, most["bytes"] / 6)
    assert spent_to_target(result, 2.0, most).values == {
        "steps_to_target": most["steps"],
        "bytes_to_target": most["bytes"],
    }


def test_the_share_of_clipped_steps_follows_the_norm() -> None:
    shares = [
        clipped_share(trained(composed((), Strengths(0.1, 0.0, max_norm=norm), SCALE))).values["clipped"]
        for norm in (1e-3, 1e6)
    ]
    assert shares == [100.0, 0.0]


def test_a_server_with_adam_tunes_its_own_rate_and_everybody_else_the_clients() -> None:
    medium = MNIST.scales["medium"]
    assert medium.tuning is not None
    assert set(medium.tuning.contestants) == set(CHOSEN)
    assert medium.tuning.contestants[ADAM].values == pytest.approx((0.003, 0.01, 0.03))
    assert medium.tuning.contestants[NONE].values == pytest.approx((0.03, 0.1, 0.3))
    made = {run.label: repr(run) for run in MNIST.runs(replace(medium, chosen={ADAM: 0.77, NONE: 0.66}), 0)}
    assert "server_lr=0.77" in made[ADAM]
    assert "Strengths(lr=0.66" in made[NONE]
    assert "Strengths(lr=0.1" in made[FEDDECAY]


def test_a_gain_within_a_point_is_no_difference_and_models_that_still_improve_are_not_compared() -> None:
    def outcome(gain: float, last: float) -> list[Answer]:
        curve = Curve((1, 2, 3, 4), (0.5, 0.6, 0.7, last))
        rows = [
            {
                label: Measured(
                    dict.fromkeys(BUDGETS.values(), 0.7 + gain * len(chosen) + seed / 1e4), {"existing_after": curve}
                )
                for label, chosen in CHOSEN.items()
            }
            for seed in range(4)
        ]
        found = verdicts(MNIST, gathered(MNIST, "medium", rows))
        return [
            found[f"FedDecay alone improves on the baseline {where}."].answer
            for where in ("where each stops", "at equal steps")
        ]

    assert outcome(0.02, 0.7) == [Answer.HOLDS, Answer.HOLDS]
    assert outcome(0.001, 0.7) == [Answer.HOLDS, Answer.HOLDS], "the seeds agree: a small gain, but a sure one"
    assert outcome(0.0, 0.7) == [Answer.SAME, Answer.SAME]
    assert outcome(0.02, 0.8) == [Answer.IMPROVING, Answer.HOLDS]
