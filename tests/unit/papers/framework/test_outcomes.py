"""Intervals on numbers made by hand."""

from __future__ import annotations

import math

import pytest

from fedtempo.papers.framework.claims import (
    higher,
)
from fedtempo.papers.framework.outcomes import Interval
from tests.unit.papers.framework.by_hand import HOLDS, THREE


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
