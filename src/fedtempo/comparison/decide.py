"""When a comparison is decided: has training converged, is the difference small, how many seeds would tell."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from statistics import fmean, stdev

from fedtempo.errors import require
from fedtempo.evaluation.over_seeds import LEVEL, student_quantile

MOST_SEEDS = 1000
"""More seeds than anybody runs: beyond it the answer is 'not by more seeds'."""
FEWEST_SCORES = 4
"""A curve with fewer evaluations has no quarters."""


def last_quarter_gain(scores: Sequence[float], higher_is_better: bool = True) -> float:
    """How much better the last quarter of a curve is than the quarter before it, both as means.

    Means, because the best of many noisy evaluations keeps growing after training has stopped to improve.
    NaN where the curve is too short to tell.

    >>> last_quarter_gain([0.1, 0.5, 0.8, 0.8, 0.9, 0.9, 0.9, 0.9])
    0.0
    >>> round(last_quarter_gain([4.0, 3.0, 2.0, 1.0], higher_is_better=False), 3)
    1.0
    """
    quarter = len(scores) // FEWEST_SCORES
    if not quarter:
        return math.nan
    last, before = fmean(scores[-quarter:]), fmean(scores[-2 * quarter : -quarter])
    return last - before if higher_is_better else before - last


def converged(scores: Sequence[float], within: float, higher_is_better: bool = True) -> bool:
    """Whether the last quarter of a validation curve improves by less than `within`.

    >>> converged([0.2, 0.6, 0.9, 0.901], within=0.005), converged([0.2, 0.4, 0.6, 0.8], within=0.005)
    (True, False)
    """
    return last_quarter_gain(scores, higher_is_better) < within


def no_difference(low: float, high: float, margin: float) -> bool:
    """Whether a whole interval of differences is smaller than what anybody cares about.

    >>> no_difference(-0.0006, 0.0032, margin=0.01), no_difference(-0.002, 0.012, margin=0.01)
    (True, False)
    """
    return -margin < low and high < margin


def seeds_needed(differences: Sequence[float], margin: float, tests: int = 1) -> int | None:
    """About how many seeds would decide: the interval leaves out 0, or it fits within the margin.

    The mean and the spread of the differences seen so far are taken for the true ones. Of several `tests` each must
    leave out 0 at a level of its own, 1 - 0.05 / tests. None where there are fewer than two differences, or where even
    `MOST_SEEDS` would not do.

    >>> seeds_needed([0.02, 0.00, 0.04, -0.01], margin=0.01)
    15
    >>> seeds_needed([0.02, 0.00, 0.04, -0.01], margin=0.01, tests=10)
    30
    >>> seeds_needed([0.001, -0.001], margin=0.01)
    3
    """
    require(margin >= 0, "margin", "a number >= 0", margin)
    if len(differences) < 2 or not all(map(math.isfinite, differences)):
        return None
    mean, spread = abs(fmean(differences)), stdev(differences)
    alone = 1 - (1 - LEVEL) / tests

    def decided(seeds: int) -> bool:
        error = spread / math.sqrt(seeds)
        apart = student_quantile(seeds - 1, alone) * error < mean
        return apart or student_quantile(seeds - 1) * error < margin - mean

    # More seeds make every interval narrower, so halving the span finds the first number that decides.
    counts = range(2, MOST_SEEDS + 1)
    place = bisect.bisect_left(counts, True, key=decided)
    return counts[place] if place < len(counts) else None
