"""What cannot be told from the best, by hand."""

from __future__ import annotations

import math

from fedtempo.evaluation.over_seeds import half_width, level_with_best


def test_level_with_the_best_is_where_the_interval_of_the_difference_holds_zero() -> None:
    """Differences 0.1, 0.3, 0.2: mean 0.2, half 4.30 * 0.1 / sqrt(3) = 0.248. Without the spread, 0.1 is told apart."""
    best, close, apart = {0: 0.9, 1: 0.9, 2: 0.9}, {0: 0.8, 1: 0.6, 2: 0.7}, {0: 0.80, 1: 0.81, 2: 0.79}
    assert half_width([0.1, 0.3, 0.2]) > 0.2
    assert level_with_best([close, best, apart], lower_is_better=False) == [True, True, False]
    assert level_with_best([best, apart], lower_is_better=True) == [False, True]


def test_one_seed_or_none_in_common_tells_nothing() -> None:
    assert level_with_best([{0: 0.9}, {0: 0.8}, {0: 0.9}], lower_is_better=False) == [True, False, True]
    assert level_with_best([{0: 0.9, 1: 0.8}, {2: 0.8, 3: 0.7}], lower_is_better=False) == [True, False]
    assert level_with_best([{}, {0: math.nan}], lower_is_better=False) == [False, False]
    assert level_with_best([{}, {0: 0.5}], lower_is_better=False) == [False, True]
