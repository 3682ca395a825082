"""Student's interval: against scipy, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from fedtempo.comparison.intervals import of_common_users
from fedtempo.comparison.significance import paired_t, sign_flip
from fedtempo.evaluation.over_seeds import half_width, over_seeds, student_quantile
from fedtempo.evaluation.protocol import UserScores
from fedtempo.papers.framework.outcomes import Interval


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_quantiles_are_scipys(level: float) -> None:
    for degrees in (*range(1, 60), 99, 100, 1000, 9999):
        assert student_quantile(degrees, level) == pytest.approx(stdtrit(degrees, (1 + level) / 2), rel=1e-11)


def test_one_degree_is_the_cauchy_distribution_and_two_have_a_formula() -> None:
    assert student_quantile(1, 0.5) == pytest.approx(1.0, rel=1e-12)
    assert student_quantile(2, 0.95) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), rel=1e-12)


def test_comparisons_and_papers_have_the_same_interval() -> None:
    values = [0.51, 0.62, 0.47, 0.55]
    ours, theirs = over_seeds(values), Interval.of(values)
    assert (theirs.low, theirs.high) == pytest.approx((ours.low, ours.high), rel=1e-12)
    assert half_width([3.0]) == math.inf


def users(values: list[float]) -> UserScores:
    return UserScores(np.arange(len(values)), np.ones(len(values)), {"f1": np.array(values)}, lower=frozenset())


def test_differences_are_of_the_users_that_both_have() -> None:
    """Both serve the first two alike. That one of them says nothing about the third is no lead."""
    ours, theirs = of_common_users(users([0.5, 0.5, math.nan]), users([0.5, 0.5, 0.0]), "f1")
    assert ours == theirs and ours["mean"] == 0.5


@pytest.mark.parametrize("worst", [math.inf, -math.inf])
def test_an_infinite_score_has_a_mean_and_no_spread(worst: float) -> None:
    estimate = over_seeds([worst, 0.5, 0.6])
    assert estimate.value == worst and math.isnan(estimate.low) and math.isnan(estimate.high)
    assert half_width([worst, 0.5]) == math.inf
    assert math.isnan(sign_flip([worst, 0.5, 0.6])) and math.isnan(paired_t([worst, 0.5, 0.6]))
