"""A bootstrap over seeds and over users at once: whether other seeds and other such users would show the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedtempo.comparison.intervals import DRAWS, Pairs
from fedtempo.evaluation.over_seeds import LEVEL, Estimate
from fedtempo.randomness import generator


def over_seeds_and_users(populations: Sequence[Pairs], draws: int = DRAWS) -> Estimate:
    """The mean difference, ours minus theirs, with a percentile interval from resampling seeds and users.

    A draw takes as many seeds as there are, with repetition. Then it takes users, with repetition. Seeds with the same
    data have the same users, so a draw takes the same users for all of them (Owen, 2007); seeds with other data have
    users of their own, which are drawn within each seed. With few seeds the percentiles are too close together, which
    is why Student's interval stands beside them.

    >>> ours, theirs = np.array([[0.9, 0.7], [0.8, 0.6]]), np.array([[0.5, 0.3], [0.4, 0.2]])
    >>> estimate = over_seeds_and_users([Pairs(ours, theirs)])
    >>> round(estimate.value, 3), round(estimate.low, 3), round(estimate.high, 3)
    (0.4, 0.4, 0.4)
    """
    gaps = [pairs.ours - pairs.theirs for pairs in populations]
    if not gaps or not all(gap.size for gap in gaps):
        return Estimate(math.nan)
    by_seed = np.concatenate([gap.mean(1) for gap in gaps])
    # One user, drawn again and again, says nothing about other users; seeds with users of their own do.
    if len(by_seed) < 2 or (len(gaps) == 1 and gaps[0].shape[1] < 2):
        return Estimate(float(by_seed.mean()))
    random = generator(0, "bootstrap", "seeds and users", len(by_seed))
    found = np.array([_draw(gaps, len(by_seed), random) for _ in range(draws)])
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(by_seed.mean()), float(low), float(high))


def _draw(gaps: Sequence[np.ndarray], seeds: int, random: np.random.Generator) -> float:
    """The mean difference of one resample."""
    taken = np.bincount(random.integers(0, seeds, seeds), minlength=seeds)
    total, first = 0.0, 0
    for gap in gaps:
        count, users = gap.shape
        chosen = np.bincount(random.integers(0, users, users), minlength=users)
        total += float(taken[first : first + count] @ gap @ chosen) / users
        first += count
    return total / seeds
