"""Drawings."""

from __future__ import annotations

import math

from fedtempo.papers.framework.svg import Axes, PixelRange, Series, draw


def test_drawings_leave_out_what_cannot_be_drawn() -> None:
    series = [Series("<a>", [1, 2, 3], [1.0, math.nan, 3.0]), Series("infinite", [1.0], [math.inf])]
    drawing = draw(series, Axes("t", "x", "y", ticks=("zero", "one")))
    assert "&lt;a&gt;" in drawing
    assert "infinite" not in drawing
    assert "nan" not in drawing
    assert draw([], Axes("t", "x", "y", log_y=True, reference=1.0)).startswith("<svg")
    assert PixelRange(0, 10, 0, 100).ticks() == [0, 2, 4, 6, 8, 10]
    assert PixelRange(1, 1000, 0, 100, log=True).ticks() == [1, 10, 100, 1000]
