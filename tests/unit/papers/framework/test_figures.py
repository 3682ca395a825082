"""Figures show what was measured and what was reported."""

from __future__ import annotations

from fedtempo.papers.framework.definitions import Curve, Measured
from fedtempo.papers.framework.figures import Curves, Points, Sweep, svg
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.svg import Axes
from tests.unit.papers.framework.by_hand import THREE


def test_figures_show_what_was_measured_and_what_was_reported() -> None:
    axes = Axes("t", "weight decay", "score", log_x=True)
    sweep = Sweep("s", "score", axes, {"method": {0.1: "a", 1.0: "b", 10.0: "not run"}})
    drawing = svg(sweep, THREE, {"a": {"score": 0.81}, "b": {"score": 0.79}})
    assert drawing.count("<polyline") == 2
    assert "method (paper)" in drawing
    assert svg(Points("p", "steps", "score", Axes("t", "steps", "score")), THREE, {}).count("<circle") == 3


def test_curves_of_runs_that_were_left_out_are_not_drawn() -> None:
    """With `--only` a figure may name a run that is not there; the runs that were performed are still written."""
    curve = Curve((1.0, 2.0), (0.5, 0.6))
    found = Outcome("medium", {}, {"a": (Measured({}, {"score": curve}),)}, left_out=("b",))
    drawing = svg(Curves("c", "score", Axes("t", "round", "score"), ("a", "b")), found, {})
    assert drawing.count("<polyline") == 1
