"""Numbers over seeds: the mean with Student's interval, and what cannot be told from the best."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; NaN ends where one number alone says nothing about its spread."""

    value: float
    low: float = math.nan
    high: float = math.nan


def over_seeds(values: Sequence[float]) -> Estimate:
    """The mean over seeds with Student's interval, mean +- t(n - 1) s / sqrt(n).

    >>> estimate = over_seeds([1.0, 2.0, 3.0])
    >>> round(estimate.value, 3), round(estimate.low, 3), round(estimate.high, 3)
    (2.0, -0.484, 4.484)
    """
    known = np.array([value for value in values if not math.isnan(value)])
    if not len(known):
        return Estimate(math.nan)
    mean = float(known.mean())
    # A seed with an infinite score, of a model that has diverged, has a mean and no spread.
    if len(known) < 2 or not np.isfinite(known).all():
        return Estimate(mean)
    half = half_width(known.tolist())
    return Estimate(mean, mean - half, mean + half)


def half_width(values: Sequence[float], level: float = LEVEL) -> float:
    """Half of Student's interval of a mean, t(n - 1) s / sqrt(n); infinite for one value, or an infinite one.

    >>> round(half_width([1.0, 2.0, 3.0]), 3)
    2.484
    """
    count = len(values)
    if count < 2 or not all(map(math.isfinite, values)):
        return math.inf
    return student_quantile(count - 1, level) * stdev(values) / math.sqrt(count)


@functools.cache
def student_quantile(degrees: int, level: float = LEVEL) -> float:
    """The t between whose negative and itself Student's distribution of whole degrees of freedom has mass `level`.

    The mass has a closed form in the angle atan(t / sqrt(degrees)), Abramowitz and Stegun (1964), 26.7.3 and 26.7.4.
    It grows with the angle, so halving the span finds the angle to the last bit.

    >>> round(student_quantile(2), 4)
    4.3027
    """
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if student_mass(middle, degrees) < level else (low, middle)
    return math.sqrt(degrees) * math.tan(high)


def student_mass(angle: float, degrees: int) -> float:
    """The probability of values within +- sqrt(degrees) tan(angle)."""
    odd, squared = degrees % 2, math.cos(angle) ** 2
    term = total = math.cos(angle) if odd else 1.0
    for k in range(2 + odd, degrees, 2):
        term *= squared * (k - 1) / k
        total += term
    if not odd:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + (math.sin(angle) * total if degrees > 1 else 0.0))


def level_with_best(columns: Sequence[Mapping[int, float]], lower_is_better: bool) -> list[bool]:
    """Which columns, with a number by seed, cannot be told from the one with the best mean.

    Student's 95 % interval of the difference over their common seeds holds 0. One common seed tells nothing: the column
    is then level only where it prints no difference, that is, where the numbers are equal.

    >>> level_with_best([{0: 0.9, 1: 0.8}, {0: 0.8, 1: 0.9}, {0: 0.1, 1: 0.11}], lower_is_better=False)
    [True, True, False]
    """
    known = [{seed: value for seed, value in column.items() if not math.isnan(value)} for column in columns]
    means = [fmean(column.values()) if column else math.nan for column in known]
    scored = [mean for mean in means if not math.isnan(mean)]
    if not scored:
        return [False] * len(columns)
    best = means.index(min(scored) if lower_is_better else max(scored))
    return [place == best or _level(known[best], column) for place, column in enumerate(known)]


def _level(best: Mapping[int, float], other: Mapping[int, float]) -> bool:
    gaps = [best[seed] - other[seed] for seed in best if seed in other]
    if len(gaps) < 2 or not all(map(math.isfinite, gaps)):
        return bool(gaps) and all(best[seed] == other[seed] for seed in best if seed in other)
    return abs(fmean(gaps)) <= half_width(gaps)
