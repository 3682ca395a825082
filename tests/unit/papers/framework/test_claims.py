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
