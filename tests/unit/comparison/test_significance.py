"""Paired tests: against scipy, by hand, and Holm's correction by hand."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from fedtempo.comparison.significance import holm, paired_t, sign_flip
from fedtempo.errors import ConfigError
from tests.later import Later

stats = Later("scipy.stats")


@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 10, 31])
def test_the_t_test_is_scipys(seeds: int) -> None:
    gaps = np.random.default_rng(seeds).normal(0.3, 1.0, seeds)
    assert paired_t(gaps.tolist()) == pytest.approx(stats.ttest_1samp(gaps, 0.0).pvalue, rel=1e-9)


@pytest.mark.parametrize("seeds", [2, 3, 5, 8])
def test_sign_flips_are_counted_one_by_one(seeds: int) -> None:
    gaps = np.random.default_rng(seeds).integers(-4, 5, seeds).astype(float)
    sums = [abs(sum(s * g for s, g in zip(signs, gaps, strict=True))) for signs in product((-1, 1), repeat=seeds)]
    expected = sum(value >= abs(gaps.sum()) for value in sums) / len(sums)
    assert sign_flip(gaps.tolist()) == expected
    assert sign_flip((-gaps).tolist()) == expected


def test_extremes() -> None:
    assert sign_flip([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) == 2 / 2**6  # all one way, whatever the rounding
    assert sign_flip([0.0, 0.0]) == paired_t([0.0, 0.0]) == 1.0
    assert paired_t([0.5, 0.5]) == 0.0
    assert math.isnan(sign_flip([1.0])) and math.isnan(paired_t([1.0]))
    with pytest.raises(ConfigError, match=r"seeds must be at most 20 for the sign-flip test. Got 21"):
        sign_flip([1.0] * 21)


def test_holm_by_hand() -> None:
    """0.01 * 4, then 0.02 * 3, then max(0.06, 0.03 * 2), then 0.5; the unknown one counts for nothing."""
    assert holm([0.5, 0.01, math.nan, 0.03, 0.02])[:2] == [0.5, 0.04]
    corrected = holm([0.5, 0.01, math.nan, 0.03, 0.02])
    assert corrected[3:] == pytest.approx([0.06, 0.06]) and math.isnan(corrected[2])
    assert holm([]) == [] and holm([0.9, 0.8]) == [1.0, 1.0]
