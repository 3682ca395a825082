"""Figures show what was measured and what was reported."""

from __future__ import annotations

from fedtempo.papers.framework.figures import Points, Sweep, svg
from fedtempo.papers.framework.svg import Axes
from tests.unit.papers.framework.by_hand import THREE


def test_figures_show_what_was_measured_and_what_was_reported() -> None:
    axes = Axes("t", "weight decay", "score", log_x=True)
    sweep = Sweep("s", "score", axes, {"method": {0.1: "a", 1.0: "b", 10.0: "not run"}})
    drawing = svg(sweep, THREE, {"a": {"score": 0.81}, "b": {"score": 0.79}})
    assert drawing.count("<polyline") == 2
    assert "method (paper)" in drawing
    assert svg(Points("p", "steps", "score", Axes("t", "steps", "score")), THREE, {}).count("<circle") == 3
