"""The answers: each from numbers that leave no other, and whether training had converged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedtempo.evaluation.protocol import Scores, UserScores
from fedtempo.federation.costs import Costs
from fedtempo.study.decisions import Finding, decide_pairs, how_it_ended
from fedtempo.training.round_report import RoundReport
from fedtempo.training.view import Run


def users_of(values: list[float], metric: str = "accuracy") -> UserScores:
    return UserScores(np.arange(len(values)), np.ones(len(values), dtype=np.int64), {metric: np.array(values)})


def scored(values: list[float], metric: str = "accuracy") -> Scores:
    users = users_of(values, metric)
    return Scores("test", users, users, users, users, metric)


def run_of(
    label: str,
    seed: int,
    values: list[float],
    curve: tuple[float, ...] = (0.5,),
    metric: str = "accuracy",
    stops: bool = False,
) -> Run:
    """A run whose users end at `values`; its validation curve has one user."""
    last = len(curve) - 1
    reports = [
        RoundReport(
            number,
            1.0,
            (0,),
            Costs(),
            Costs(),
            0.0,
            validation=scored([score], metric),
            test=scored(values, metric) if number == last else None,
            stops=stops and number == last,
        )
        for number, score in enumerate(curve)
    ]
    return Run(label, reports, {"seed": str(seed), "data": "same"}, seed)


def answer_for(gaps: list[list[float]], margin: float = 0.01, short: tuple[str, ...] = ()) -> Finding:
    """What is said where the contestant's users are ahead by these gaps, a list for each seed."""
    ours = [run_of("new", seed, [0.5 + gap for gap in users]) for seed, users in enumerate(gaps)]
    theirs = [run_of("old", seed, [0.5] * len(users)) for seed, users in enumerate(gaps)]
    (decision,) = decide_pairs({"new": ours, "old": theirs}, [("new", "old", "existing")], margin, short)
    assert decision.seeds.value == pytest.approx(np.mean(gaps))
    return decision.finding


CASES = {
    "clearly ahead": ([[0.05, 0.06], [0.06, 0.05], [0.05, 0.05], [0.06, 0.06]], Finding.BETTER),
    "clearly behind": ([[-0.05, -0.06], [-0.06, -0.05], [-0.05, -0.05], [-0.06, -0.06]], Finding.WORSE),
    "sure to be small": ([[0.004, 0.004], [0.003, 0.005], [0.004, 0.003]], Finding.SAME),
    "nothing at all": ([[0.0, 0.0], [0.0, 0.0]], Finding.SAME),
    "seeds disagree": ([[0.10, 0.10], [-0.06, -0.06], [0.05, 0.05]], Finding.UNCLEAR),
    "users disagree": ([[0.30, -0.20], [0.30, -0.20], [0.301, -0.20]], Finding.UNCLEAR),
    "one seed": ([[0.2, 0.3]], Finding.UNCLEAR),
    "one user": ([[0.05], [0.06], [0.05], [0.06]], Finding.UNCLEAR),
}


@pytest.mark.parametrize("case", CASES)
def test_answers(case: str) -> None:
    gaps, expected = CASES[case]
    assert answer_for(gaps) is expected


def test_whoever_has_not_converged_is_not_judged() -> None:
    assert answer_for(CASES["clearly ahead"][0], short=("old",)) is Finding.SHORT


def test_a_wider_margin_turns_a_lead_into_no_difference() -> None:
    gaps = [[0.02, 0.02], [0.021, 0.02], [0.02, 0.021]]
    assert answer_for(gaps, 0.01) is Finding.BETTER
    assert answer_for(gaps, 0.03) is Finding.SAME


def test_many_comparisons_need_more() -> None:
    """p = 0.03 alone is a lead; one of ten such questions is not."""
    gaps = [0.01, 0.03, 0.02, 0.045, 0.005]
    ours = [run_of("new", seed, [0.5 + gap] * 2) for seed, gap in enumerate(gaps)]
    theirs = [run_of("old", seed, [0.5] * 2) for seed in range(5)]
    runs = {"new": ours, "old": theirs}
    (alone,) = decide_pairs(runs, [("new", "old", "existing")], 0.01)
    assert alone.finding is Finding.BETTER and alone.p < 0.05
    many = decide_pairs(runs, [("new", "old", "existing")] * 10, 0.01)
    assert {one.finding for one in many} == {Finding.UNCLEAR}
    assert many[0].corrected == pytest.approx(10 * alone.p)
    assert many[0].needed is not None and many[0].needed > 5
    assert f"many comparisons; about {many[0].needed} seeds would decide it" in many[0].reason


def test_undecided_says_how_many_seeds_would_decide() -> None:
    ours = [run_of("new", seed, [0.5 + gap] * 2) for seed, gap in enumerate([0.02, 0.0, 0.04, -0.01])]
    theirs = [run_of("old", seed, [0.5] * 2) for seed in range(4)]
    (decision,) = decide_pairs({"new": ours, "old": theirs}, [("new", "old", "new")], 0.01)
    assert decision.finding is Finding.UNCLEAR and decision.needed == 15
    assert "about 15 seeds would decide it" in str(decision)


def test_small_over_seeds_but_not_over_users_says_so() -> None:
    """Two users 0.1 ahead and behind in every seed: no seed changes that, but other users might."""
    ours = [run_of("new", seed, [0.6, 0.4 + 0.001 * seed]) for seed in range(4)]
    theirs = [run_of("old", seed, [0.5, 0.5]) for seed in range(4)]
    (decision,) = decide_pairs({"new": ours, "old": theirs}, [("new", "old", "existing")], 0.01)
    assert decision.finding is Finding.UNCLEAR
    assert "other users could make it larger; more users would decide it" in decision.reason


def test_where_lower_is_better_less_is_a_lead() -> None:
    ours = [run_of("new", seed, [1.0 + 0.01 * seed] * 2, metric="loss") for seed in range(4)]
    theirs = [run_of("old", seed, [2.0] * 2, metric="loss") for seed in range(4)]
    (decision,) = decide_pairs({"new": ours, "old": theirs}, [("new", "old", "existing")], 0.01)
    assert decision.finding is Finding.BETTER and decision.seeds.value > 0


def test_convergence_is_an_early_end_or_a_flat_last_quarter() -> None:
    steep = run_of("a", 0, [0.9], curve=(0.2, 0.4, 0.6, 0.8))
    flat = run_of("a", 1, [0.9], curve=(0.2, 0.6, 0.8, 0.801))
    ended = run_of("a", 2, [0.9], curve=(0.2, 0.4), stops=True)
    assert not how_it_ended([steep], 0.005).converged
    assert how_it_ended([flat, ended], 0.005).converged
    assert how_it_ended([ended], 0.005).converged and how_it_ended([ended], 0.005).stopped == 1
    assert not how_it_ended([replace(ended, history=ended.history[:1])], 0.005).converged, "too short to tell"
