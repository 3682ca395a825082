"""Verdicts on numbers made by hand."""

from __future__ import annotations

import pytest

import fedtempo as ft
from fedtempo.papers.framework.claims import (
    EDGE,
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
from fedtempo.papers.framework.outcomes import Outcome
from tests.unit.papers.framework.by_hand import FAILS, HOLDS, THREE, UNCLEAR, outcome


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


def test_whoever_is_behind_at_an_edge_of_its_rates_is_named() -> None:
    """The one that is ahead may stand at an edge: another rate can only add to its lead."""
    values = {"a": (0.60, 0.61, 0.62), "b": (0.50, 0.51, 0.52)}
    measured = {label: tuple(Measured({"score": one}) for one in own) for label, own in values.items()}
    warned = {}
    for edge in ("a", "b"):
        found = Outcome("medium", {"score": score_column("score")}, measured, at_the_edge=(edge,))
        verdicts = [rule(found) for rule in (higher("a", "b", "score"), higher("b", "a", "score"))]
        assert [one.answer for one in verdicts] == [HOLDS, FAILS]
        warned[edge] = [EDGE in one.numbers for one in verdicts]
        assert warned[edge] == ["b chose the largest or smallest rate" in one.reason for one in verdicts]
    assert warned == {"a": [False, False], "b": [True, True]}
