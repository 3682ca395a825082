"""Verdicts and intervals on numbers made by hand."""

from __future__ import annotations

import math

import pytest

import fedtempo as ft
from fedtempo.papers.framework.claims import (
    Answer,
    Claim,
    Rule,
    Verdict,
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
from fedtempo.papers.framework.figures import Points, Sweep, svg
from fedtempo.papers.framework.frame import Column, Measured
from fedtempo.papers.framework.outcomes import Interval, Outcome
from fedtempo.papers.framework.svg import Axes, Range, Series, draw

HOLDS, FAILS, UNCLEAR = Answer.HOLDS, Answer.FAILS, Answer.UNCLEAR


def outcome(scale: str = "small", **runs: list[float]) -> Outcome:
    columns = {"score": Column("score"), "steps": Column("steps", exact=True)}
    measured = {
        label: tuple(Measured({"score": v, "steps": 10.0 * v}) for v in values) for label, values in runs.items()
    }
    return Outcome(scale, columns, measured)


THREE = outcome(a=[0.8, 0.7, 0.6], b=[0.75, 0.65, 0.56], c=[0.9, 0.6, 0.7])


def test_the_interval_is_students() -> None:
    interval = Interval.of([1.0, 2.0, 4.0])
    half = 4.302653 * math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2) / math.sqrt(3)
    assert interval.mean == pytest.approx(7 / 3)
    assert interval.half == pytest.approx(half)
    assert Interval.of([5.0]).text() == "5.000"
    assert Interval.of([math.nan, 1.0]).text() == "-"


def test_pairs_tell_what_means_cannot() -> None:
    """a and b overlap widely, but a is better in every seed by nearly the same."""
    assert THREE.interval("a", "score").low < THREE.interval("b", "score").mean
    assert higher("a", "b", "score")(THREE).answer == HOLDS


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


def test_figures_show_what_was_measured_and_what_was_reported() -> None:
    axes = Axes("t", "weight decay", "score", log_x=True)
    sweep = Sweep("s", "score", axes, {"method": {0.1: "a", 1.0: "b", 10.0: "not run"}})
    drawing = svg(sweep, THREE, {"a": {"score": 0.81}, "b": {"score": 0.79}})
    assert drawing.count("<polyline") == 2
    assert "method (paper)" in drawing
    assert svg(Points("p", "steps", "score", Axes("t", "steps", "score")), THREE, {}).count("<circle") == 3


def test_drawings_leave_out_what_cannot_be_drawn() -> None:
    series = [Series("<a>", [1, 2, 3], [1.0, math.nan, 3.0]), Series("infinite", [1.0], [math.inf])]
    drawing = draw(series, Axes("t", "x", "y", ticks=("zero", "one")))
    assert "&lt;a&gt;" in drawing
    assert "infinite" not in drawing
    assert "nan" not in drawing
    assert draw([], Axes("t", "x", "y", log_y=True, reference=1.0)).startswith("<svg")
    assert Range(0, 10, 0, 100).ticks() == [0, 2, 4, 6, 8, 10]
    assert Range(1, 1000, 0, 100, log=True).ticks() == [1, 10, 100, 1000]
