"""Verdicts on numbers made by hand."""

from __future__ import annotations

import pytest

import fedtempo as ft
from fedtempo.papers.framework.claims import (
    Answer,
    Claim,
    Rule,
    Verdict,
    above,
    all_of,
    any_of,
    at_least,
    at_most,
    at_paper_scale,
    equal,
    higher,
    lower,
    near,
)
from fedtempo.papers.framework.definitions import Column, Measured, score_column
from fedtempo.papers.framework.outcomes import Outcome, Units
from tests.unit.papers.framework.by_hand import FAILS, HOLDS, THREE, UNCLEAR, outcome

UNBOUNDED = Answer.UNBOUNDED


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        (higher("b", "a", "score"), FAILS),
        (lower("b", "a", "score"), HOLDS),
        (higher("a", "b", "score", by=0.2), FAILS),
        (higher("b", "a", "score", by=-0.1), HOLDS),
        (higher("c", "a", "score"), UNCLEAR),
        (at_least("a", "score", 0.2), HOLDS),
        (at_most("a", "score", 0.2), FAILS),
        (at_most("a", "score", 0.7), UNCLEAR),
        (at_most("a", "steps", 7.0), HOLDS),
        (near("a", "steps", 7.0, 0.1), HOLDS),
        (near("a", "steps", 8.0, 0.1), FAILS),
        (equal("a", "a", "score"), HOLDS),
        (equal("a", "b", "score", 0.01), FAILS),
        (at_least("a", "missing", 0.0), UNCLEAR),
        (at_paper_scale(at_least("a", "score", 0.2)), UNCLEAR),
        (above("a", "steps", 7.0), FAILS),  # exactly seven: at least that, and no more
        (at_least("a", "steps", 7.0), HOLDS),
        (above("a", "steps", 6.9), HOLDS),
    ],
)
def test_rules(rule: Rule, answer: Answer) -> None:
    assert rule(THREE).answer == answer


def says(answer: Answer) -> Rule:
    return lambda _: Verdict(answer, "so")


def test_joined_rules() -> None:
    assert all_of(says(HOLDS), says(UNCLEAR))(THREE).answer == UNCLEAR
    assert all_of(says(UNCLEAR), says(FAILS))(THREE).answer == FAILS
    assert any_of(says(FAILS), says(UNCLEAR))(THREE).answer == UNCLEAR
    assert any_of(says(UNCLEAR), says(HOLDS))(THREE).answer == HOLDS
    assert any_of(says(FAILS), says(FAILS))(THREE).answer == FAILS


def test_one_seed_tells_only_about_exact_counts() -> None:
    single = outcome(a=[0.8], b=[0.7])
    assert higher("a", "b", "score")(single).answer == UNCLEAR
    assert higher("a", "b", "steps")(single).answer == HOLDS
    assert Claim("a is better", says(HOLDS)).judge(outcome("smoke", a=[0.8])).answer == UNCLEAR


def test_a_misspelt_label_is_an_error() -> None:
    with pytest.raises(ft.ConfigError, match="Did you mean 'FedAvg'"):
        at_least("FedAvgg", "score", 0.0)(outcome(FedAvg=[1.0]))


@pytest.mark.parametrize(("unit", "margin"), [(1.0, 0.01), (100.0, 1.0)])
def test_scores_are_told_in_points_where_there_is_little_room(unit: float, margin: float) -> None:
    """In fractions and in percent: 0.60, 0.61, 0.62 against 0.59 is ahead by two points."""
    measured = {
        label: tuple(Measured({"score": unit * one, "steps": one}) for one in values)
        for label, values in {"a": (0.60, 0.61, 0.62), "b": (0.59, 0.59, 0.59)}.items()
    }
    columns = {"score": score_column("score", margin=margin), "steps": Column("steps")}
    found = Outcome("small", columns, measured)
    assert higher("a", "b", "score")(found).numbers.startswith("a minus b: +2.00 points [-0.48, +4.48]; about")
    told = higher("a", "b", "score", -margin)(found).numbers
    assert told == "a minus b: +2.00 points [-0.48, +4.48], must exceed -1 point"
    assert higher("a", "b", "steps")(found).numbers.startswith("a minus b: 0.02 [-0.0")


@pytest.mark.parametrize(
    ("unbounded", "column", "answers"),
    [
        ("a", score_column("score"), [HOLDS, FAILS]),  # ahead already: a better rate can only add to the lead
        ("b", score_column("score"), [UNBOUNDED, UNBOUNDED]),
        ("a", Column("loss"), [UNBOUNDED, UNBOUNDED]),  # rates are chosen by a score, so a loss may go either way
        ("b", Column("steps", exact=True), [HOLDS, FAILS]),
    ],
)
def test_nothing_is_decided_where_a_rate_of_the_one_behind_has_no_bound(
    unbounded: str, column: Column, answers: list[Answer]
) -> None:
    values = {"a": (0.60, 0.61, 0.62), "b": (0.50, 0.51, 0.52)}
    measured = {label: tuple(Measured({"value": one}) for one in own) for label, own in values.items()}
    found = Outcome("medium", {"value": column}, measured, unbounded=(unbounded,))
    verdicts = [rule(found) for rule in (higher("a", "b", "value"), higher("b", "a", "value"))]
    assert [one.answer for one in verdicts] == answers
    told = f"no bound for the rate of {unbounded}"
    assert [told in one.numbers for one in verdicts] == [one == UNBOUNDED for one in answers]


def test_no_difference_needs_a_bound_for_both() -> None:
    measured = {label: tuple(Measured({"score": 0.6 + seed / 1e4}) for seed in range(3)) for label in "ab"}
    for unbounded, answer in (((), Answer.SAME), (("a",), UNBOUNDED), (("b",), UNBOUNDED)):
        found = Outcome("medium", {"score": score_column("score")}, measured, unbounded=unbounded)
        assert higher("a", "b", "score")(found).answer == answer


def test_a_value_that_is_made_of_several_runs_needs_a_bound_for_each() -> None:
    column = score_column("gain", of_one_run=False, made_of=lambda label: ("plain", label))
    measured = {"mine": tuple(Measured({"gain": 0.05 + seed / 1e4}) for seed in range(3))}
    found = Outcome("medium", {"gain": column}, measured, unbounded=("plain",))
    assert above("mine", "gain", 0.0)(found).answer == UNBOUNDED


def test_more_looks_make_intervals_wider_and_seeds_of_a_unit_are_one_value() -> None:
    values = {"a": (0.60, 0.62, 0.64, 0.66), "b": (0.60, 0.60, 0.60, 0.60)}
    measured = {label: tuple(Measured({"score": one}) for one in own) for label, own in values.items()}
    widths = [
        Outcome("medium", {"score": Column("score")}, measured, looks=looks).difference("a", "b", "score").half
        for looks in (1, 2, 3)
    ]
    assert widths == sorted(widths) and len({*widths}) == 3
    found = Outcome("medium", {"score": Column("score")}, measured, units=Units("communities", 2))
    assert found.differences("a", "b", "score") == pytest.approx([0.02, 0.04])
    assert "there are 2 communities, and more seeds add none" in higher("a", "b", "score")(found).reason


def test_a_joined_rule_tells_the_part_that_decides() -> None:
    def part(answer: Answer, p: float) -> Rule:
        return lambda _: Verdict(answer, f"p {p}", p=p)

    close, clear = part(HOLDS, 0.04), part(HOLDS, 0.001)
    held = all_of(clear, close)(THREE)
    assert (held.numbers, held.p) == ("p 0.04", 0.04), "the closest of those that all must hold"
    failed = all_of(part(FAILS, 0.03), part(FAILS, 0.002), clear)(THREE)
    assert (failed.numbers, failed.p) == ("p 0.002", pytest.approx(0.006)), "one of three was enough"
