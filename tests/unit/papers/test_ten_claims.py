"""The ten claims: how their parts make a verdict, and what is shown of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedtempo.papers import REPRODUCTIONS
from fedtempo.papers.framework.claims import Answer, Verdict
from fedtempo.papers.framework.definitions import Measured, score_column
from fedtempo.papers.framework.outcomes import NotRunError, Outcome
from fedtempo.papers.framework.over_users import higher_for_users
from fedtempo.papers.ten_claims import TEN, judging
from fedtempo.papers.ten_claims.judging import Judged, PaperClaim, Part, judged, table
from tests.unit.papers.framework.by_hand import THREE
from tests.unit.papers.framework.test_choosing import TUNED

HOLDS, FAILS, SAME, UNCLEAR = Answer.HOLDS, Answer.FAILS, Answer.SAME, Answer.UNCLEAR


@pytest.fixture(autouse=True)
def stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "judged_outcome", lambda reproduction, folder: THREE)


def claim(*parts: tuple[Answer, float], unfair: str = "", hours: str = "") -> PaperClaim:
    def part(answer: Answer, p: float) -> Part:
        return Part("here", TUNED, lambda outcome: Verdict(answer, "so", value=f"{p}", p=p))

    made = tuple(part(*one) for one in parts)
    return PaperClaim("pflego", "'better'", "1", "+1", made, "small", "Why.", unfair, hours)


def answers(claims: Sequence[PaperClaim]) -> list[str]:
    return [row.answer for row in judged(Path(), claims)]


def test_all_parts_must_hold_and_one_that_fails_is_enough() -> None:
    assert answers([claim((HOLDS, 0.001), (HOLDS, 0.01))]) == ["holds"]
    assert answers([claim((HOLDS, 0.001), (FAILS, 0.001))]) == ["does not hold"]
    assert answers([claim((SAME, 0.9), (SAME, 0.8))]) == ["equal within a point"]
    assert answers([claim((SAME, 0.9), (HOLDS, 0.001))]) == ["not decided"]
    assert answers([claim((HOLDS, 0.001), (Answer.UNBOUNDED, 0.001))]) == ["rate not bounded"]


def test_what_is_missing_and_the_hours_are_told() -> None:
    assert answers([claim((UNCLEAR, 0.3), hours="2 hours")]) == ["not decided; 2 hours"]
    assert answers([claim((HOLDS, 0.001), unfair="Unequal.", hours="2 hours")]) == ["not decided; 2 hours"]
    half = claim((HOLDS, 0.001), (Answer.NOT_RUN, 0.0), hours="2 hours")
    assert answers([half]) == ["not decided (1 of 2 parts not run); 2 hours"]


def test_a_verdict_survives_the_correction_over_all_claims() -> None:
    """0.02 alone is enough; as the smallest of ten it has to be below 0.005."""
    alone, nine = claim((HOLDS, 0.02)), [claim((UNCLEAR, 0.5))] * 9
    assert answers([alone])[0] == "holds"
    assert answers([alone, *nine])[0] == "not decided (p = 0.20 after correction)"
    assert answers([claim((HOLDS, 0.001)), *nine])[0] == "holds"
    # One of three parts that fails had three chances to.
    assert answers([claim((FAILS, 0.02), (HOLDS, 0.001), (HOLDS, 0.001))]) == [
        "not decided (p = 0.06 after correction)"
    ]


def test_a_part_that_was_left_out_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(outcome: Outcome) -> Verdict:
        raise NotRunError("a was not run")

    one = replace(claim((HOLDS, 0.001)), parts=(Part("here", TUNED, missing),) * 6)
    (row,) = judged(Path(), [one])
    assert row.answer == "not decided (6 of 6 parts not run)"
    monkeypatch.setattr(judging, "judged_outcome", lambda reproduction, folder: None)
    (row,) = judged(Path(), [one])
    assert row == Judged(1, one, row.answer, "-", "not run")
    assert table([row])[-1].startswith("| 1 | [PFLEGO](pflego.md): 'better' (1) | +1 | - | small, not run |")


def test_there_are_ten_each_with_its_section_and_what_it_takes() -> None:
    assert len(TEN) == 10
    for one in TEN:
        assert one.section and one.printed and one.why and one.parts
        assert one.hours or not one.unfair, "what is no fair contest says what a fair one takes"
        assert {part.reproduction.name for part in one.parts} <= set(REPRODUCTIONS)
        assert {part.reproduction.paper for part in one.parts} == {one.paper}


@pytest.mark.parametrize(("users", "answer"), [(2, UNCLEAR), (200, HOLDS), (0, UNCLEAR)])
def test_a_claim_about_new_users_survives_other_users(users: int, answer: Answer) -> None:
    """A lead of two points in every seed; a user's own lead is 12 points more, or 12 less."""

    def run(lead: float, seed: int) -> Measured:
        own = tuple((user, 10, 0.5 + lead + (0.12 if user % 2 else -0.12) * (lead > 0)) for user in range(users))
        return Measured({"new_after/mean": 0.5 + lead + seed / 1e4}, users={"new_after": own} if users else {})

    measured = {name: tuple(run(lead, seed) for seed in range(5)) for name, lead in (("a", 0.02), ("b", 0.0))}
    found = Outcome("medium", {"new_after/mean": score_column("new users")}, measured)
    verdict = higher_for_users("a", "b", "new_after")(found)
    assert verdict.answer == answer
    assert answer == HOLDS or "users" in verdict.numbers


@pytest.mark.parametrize(("gap", "answer"), [(0.0, SAME), (0.005, UNCLEAR)])
def test_a_small_lead_of_the_paper_has_a_small_margin(gap: float, answer: Answer) -> None:
    """Its lead with two classes is 0.6 points: half a point apart, give or take, is not equal."""
    rule = TEN[5].parts[0].rule
    measured = {
        label: tuple(Measured({"existing_after/mean": 0.9 + lead + (seed % 2 - 0.5) / 400}) for seed in range(6))
        for label, lead in (("PFLEGO", 0.0), ("FedPer", 0.0))
    }
    measured["PFLEGO"] = tuple(
        Measured({"existing_after/mean": one.values["existing_after/mean"] + (seed % 3 - 1) * gap})
        for seed, one in enumerate(measured["PFLEGO"])
    )
    found = Outcome("medium", {"existing_after/mean": score_column("accuracy")}, measured)
    assert rule(found).answer == answer
