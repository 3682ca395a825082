"""The rules that suggested a beta and a decay of K, and the page's tables of what came of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields, replace
from itertools import product

import pytest
from benchmarks import stored_advice
from benchmarks.advice import last_steps, suggested
from benchmarks.stored_advice import BETTER, LEVEL, UNCLEAR, WORSE, Comparison, Decay, Row

from fedtempo.papers.framework.definitions import FIRST_TUNING_SEED
from fedtempo.papers.framework.outcomes import Interval
from fedtempo.schedules import decaying_k
from fedtempo.theory import Measurements, fedavg_ratio, feddecay_ratio, local_steps, personalization_ratio
from fedtempo.theory.measurements import TESTED

PLAN = Measurements(0.5, 4.0, 2.0, lr=0.1, steps=10, rounds=100)


def test_beta_gives_the_share_of_fedavgs_ratio_that_disagreement_asks_for() -> None:
    assert feddecay_ratio(suggested(PLAN).beta, 10, 0.1) == pytest.approx(0.5 * fedavg_ratio(10, 0.1), rel=0.03)
    assert suggested(replace(PLAN, disagreement=0.0)).beta == suggested(replace(PLAN, disagreement=None)).beta == 0.2
    assert (suggested(replace(PLAN, steps=1)).beta, suggested(replace(PLAN, disagreement=1.0)).beta) == (1.0, 1.0)


def test_k_reaches_its_target_halfway() -> None:
    """Drift at K = 3 is 0.5 (6 / 4.88 - 1) = 0.1148 > 0.1 and at K = 2 it is 0.0556, so K must fall from 10 to 2."""
    decay = suggested(PLAN).k_decay
    counts = local_steps(decaying_k(10, decay), 100)
    assert (counts[0], counts[51], last_steps(PLAN)) == (10, 2, 2)
    assert decay == pytest.approx(0.2 ** (1 / 50), abs=1e-5)
    assert suggested(replace(PLAN, steps=1)).k_decay == suggested(replace(PLAN, disagreement=0.0)).k_decay == 1.0
    for steps, rounds in product((5, 20, 300), (1, 20, 501)):
        plan, half = replace(PLAN, steps=steps, rounds=rounds), max(1, rounds // 2)
        assert local_steps(decaying_k(steps, suggested(plan).k_decay), half + 1)[half] == last_steps(plan)


def test_the_page_has_the_tables_of_the_stored_runs() -> None:
    page = stored_advice.PAGE.read_text()
    assert stored_advice.SECTION.search(page)
    assert stored_advice.filled(page) == page, "write them anew with python -m benchmarks.stored_advice --page"
    betas, decays = ([*stored_advice.rows(about_beta)] for about_beta in (True, False))
    assert not stored_advice.stays(betas) and not stored_advice.stays(decays)
    results = Counter(row.result.partition(":")[0] for row in (*betas, *decays))
    assert results == {"no benefit": 6, "not tested": 1, "worse": 1, "pays": 1, "missed": 3}, "what the words below say"
    saved = [-100 * row.cost.mean for row in decays if not row.followed]
    assert (round(min(saved)), round(max(saved))) == (27, 29) and "27 to 29 %" in page and "27 to 29 %" in TESTED


def test_every_question_was_asked_off_the_judged_seeds_and_answered_by_the_rules() -> None:
    answers = json.loads(stored_advice.FILE.read_text())
    assert [*answers] == [question.name for question in stored_advice.QUESTIONS]
    for question in stored_advice.QUESTIONS:
        answer = answers[question.name]
        measured = {field.name: answer[field.name] for field in fields(Measurements) if field.name in answer}
        found = suggested(Measurements(**measured))
        assert (found.beta, found.k_decay) == (answer["beta"], answer["k_decay"])
        assert ("trained" in answer) == stored_advice.far(question, answer)
        outcome = stored_advice.stored(question.experiment.name)
        assert answer["lr"] == outcome.choices[question.plain].value, "the tuned rate of the plain run"
        assert outcome.seeds < FIRST_TUNING_SEED


def test_the_rule_that_came_later_decides_about_beta_as_the_page_says() -> None:
    answers = json.loads(stored_advice.FILE.read_text())
    stored_alone = []
    for question in stored_advice.QUESTIONS:
        if question.about_beta:
            answer = {name: value for name, value in answers[question.name].items() if name != "trained"}
            stored_alone.append(stored_advice.row(question, answer, stored_advice.stored(question.experiment.name)))
    assert stored_advice.stays(stored_alone)
    assert [row.question.name for row in stored_alone if row.pays] == ["FEMNIST"]
    assert str(stored_alone[0].comparisons[0]) == "+0.8 [+0.4, +1.1], better"
    assert "beta would have stayed" in stored_advice.PAGE.read_text()


def test_shares_of_r_by_hand() -> None:
    """Three epochs of one batch are three steps; with longer ones beta 0 leaves the first epoch's R."""
    assert (
        Decay(0.5).share(3) == pytest.approx(personalization_ratio([1, 0.5, 0.25], 1.0)) == Decay(0.5, False).share(3)
    )
    assert Decay(1.0).share(12) == pytest.approx(1.0)
    assert Decay(0.0).share(12) == pytest.approx(1.5 / 5.5)


@pytest.mark.parametrize(
    ("answers", "cost", "result"),
    [
        ((BETTER, UNCLEAR), 0.2, "pays"),
        ((BETTER, WORSE), -0.5, "worse"),
        ((LEVEL, UNCLEAR), -0.2, "pays"),
        ((LEVEL, LEVEL), -0.05, "no benefit"),
        ((UNCLEAR, UNCLEAR), -0.5, "no benefit"),
    ],
)
def test_what_pays(answers: tuple[str, str], cost: float, result: str) -> None:
    nothing = Interval(0.0, 0.0, 0.0)
    comparisons = tuple(Comparison(answer, nothing) for answer in answers)
    row = Row(stored_advice.QUESTIONS[0], "", "", True, comparisons, Interval(cost, cost, cost))
    assert row.result == result
    assert stored_advice.stays([row]) == (result == "pays")
    unfollowed = replace(row, followed=False)
    assert unfollowed.result == ("missed: the stored run pays" if result == "pays" else "not tested")
    assert not stored_advice.stays([unfollowed])
