"""The demo's chart and sentences, from runs whose numbers are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fedtempo as ft
from fedtempo.cli.demo_page import HEIGHT, DemoFindings
from fedtempo.cli.demo_runs import BETAS, BY_BETA, DIFFERENT, MAKERS, SIMILAR, TUNED, DemoRun
from fedtempo.evaluation.protocol import Scores
from fedtempo.federation.costs import Costs
from fedtempo.study import Finding
from fedtempo.training.round_report import RoundReport
from tests.unit.study.test_decisions import users_of


def demo_run(label: str, alpha: float, seed: int, before: float, after: float) -> DemoRun:
    early, late = users_of([before, before]), users_of([after, after])
    scores = Scores("test", early, late, early, late)
    steps = Costs(steps={"FedSGD": 1, "decaying K": 6}.get(label, 10))
    history = [RoundReport(0, 1.0, (0,), steps, steps, 0.0, validation=scores, test=scores)]
    run = ft.Run(label, history, {"seed": str(seed), "data": str(seed)}, seed)
    return DemoRun(label, alpha, seed, run)


@pytest.fixture(scope="module")
def findings() -> DemoFindings:
    """PFLEGO is far ahead in every seed, FedNAR in one; fine-tuning helps different users, and most at beta 0."""
    ahead = {"PFLEGO": (0.1, 0.101, 0.099, 0.1), "FedNAR": (0.2, -0.1, 0.0, 0.05)}
    gains = {DIFFERENT: dict(zip(BY_BETA.values(), (0.2, 0.15, 0.05, 0.0), strict=True)), SIMILAR: {}}
    runs = [
        demo_run(label, alpha, seed, 0.7, 0.7 + gains[alpha].get(label, 0.0) + ahead.get(label, (0,) * 4)[seed])
        for seed in range(4)
        for alpha, tuned in TUNED.items()
        for label in tuned
    ]
    return DemoFindings(runs, 40)


def test_only_a_sure_lead_is_called_one(findings: DemoFindings) -> None:
    answers = {(one.label, one.users): one.finding for one in findings.decisions()}
    assert answers["PFLEGO", "existing"] is Finding.BETTER
    assert answers["FedNAR", "existing"] is Finding.UNCLEAR
    assert answers["decaying K", "new"] is Finding.SAME
    lines = findings.sentences()
    (reference,) = [line for line in lines if line.startswith("The others are compared with FedAvg; ")]
    by_label = {line.partition(":")[0]: line for line in lines if line != reference}
    assert set(by_label) == set(MAKERS) - {"FedAvg"}
    assert "existing users: better (+10.0 ±0.1)" in by_label["PFLEGO"]
    assert "existing users: these seeds can't tell, about" in by_label["FedNAR"]
    assert "survive the correction for 14 comparisons" in reference and len(answers) == 14
    assert "40% fewer local steps, FedSGD 90% fewer" in reference


def test_the_trade_off_is_the_gain_by_beta(findings: DemoFindings) -> None:
    assert [one.value for one in findings.gains(DIFFERENT, "gain")] == pytest.approx([0.2, 0.15, 0.05, 0.0])
    different, similar = findings.trade_off()
    assert "+20.0 ±0.0 at beta 0, +15.0" in different and "+0.0 ±0.0 at beta 0, +0.0" in similar


def test_the_text_chart_has_both_lines_where_they_are(findings: DemoFindings) -> None:
    lines = findings.charts()
    assert len(lines) == HEIGHT + 2 and "alpha 0.1" in lines[0] and "alpha 10" in lines[0]
    left = [line[:34] for line in lines[1:-1]]
    assert left[0].startswith(".900 |x") and left[-1].startswith(".700 |o")
    assert sum(line.count("x") for line in left) == len(BETAS) - 1 and left[-1].rstrip().endswith("*")
    right = [line[37:] for line in lines[1:-1]]
    assert right[-1].count("*") == len(BETAS), "no gain: before and after stand in one place"
    assert "polyline" in findings.svg()


def test_where_users_disagree_more_users_are_asked_for() -> None:
    """Every seed has the same small mean, of users who are far ahead and far behind."""
    runs = [
        demo_run(label, alpha, seed, 0.7, 0.7) for seed in range(4) for alpha, tuned in TUNED.items() for label in tuned
    ]
    apart = users_of([0.9, 0.5])
    scores = Scores("test", apart, apart, apart, apart)
    split = [
        replace(one, run=replace(one.run, history=[replace(one.run.history[0], validation=scores, test=scores)]))
        if one.label == "FedNAR"
        else one
        for one in runs
    ]
    (line,) = [line for line in DemoFindings(split, 40).sentences() if line.startswith("FedNAR:")]
    assert line.count("these seeds can't tell, more users would (+0.0 ±0.0)") == 2
