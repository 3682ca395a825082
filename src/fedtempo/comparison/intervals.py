"""Intervals: Student's t over seeds, and a paired bootstrap over users."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev

import numpy as np

from fedtempo.evaluation.protocol import UserScores, bottom_decile
from fedtempo.randomness import generator

LEVEL = 0.95
DRAWS = 2000
_AT_ONCE = 4_000_000
"""Resampled values held at a time."""


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; NaN ends where one number alone says nothing about its spread."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Pairs:
    """Users of one population, scored under two contestants with one or several seeds.

    `ours` and `theirs` have shape (seeds, users): the same user in the same column.
    """

    ours: np.ndarray
    theirs: np.ndarray


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


def half_width(values: Sequence[float]) -> float:
    """Half of Student's interval of a mean, t(n - 1) s / sqrt(n); infinite for one value, or an infinite one.

    >>> round(half_width([1.0, 2.0, 3.0]), 3)
    2.484
    """
    count = len(values)
    if count < 2 or not all(map(math.isfinite, values)):
        return math.inf
    return student_quantile(count - 1) * stdev(values) / math.sqrt(count)


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


def over_users(populations: Sequence[Pairs], statistic: str, lower: bool, interpolated: bool = False) -> Estimate:
    """The difference of a statistic, ours minus theirs, with a percentile interval from resampling users.

    A resample takes the same users under both contestants and under all seeds. Populations (other data, other users)
    are resampled apart, and count by their seeds. `lower` says that lower is better: the bottom decile is then high.
    Populations of one user each have no interval: every resample would be the same.
    """
    counts = np.array([len(pairs.ours) for pairs in populations], dtype=float)
    if not len(counts) or not all(pairs.ours.shape[1] for pairs in populations):
        return Estimate(math.nan)
    weights = counts / counts.sum()
    observed, draws = 0.0, np.zeros(DRAWS)
    for index, (pairs, weight) in enumerate(zip(populations, weights, strict=True)):
        everybody = np.arange(pairs.ours.shape[1])[None]
        observed += weight * float(_difference(pairs, everybody, statistic, lower, interpolated)[0])
        draws += weight * _resampled(pairs, index, statistic, lower, interpolated)
    if all(pairs.ours.shape[1] < 2 for pairs in populations):
        return Estimate(observed)
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(observed, float(low), float(high))


def paired(ours: Sequence[UserScores], theirs: Sequence[UserScores], metric: str) -> Pairs:
    """The users for whom the metric is defined under both contestants and every seed, in one order."""
    common = _common_users((*ours, *theirs), metric)
    return Pairs(_columns(ours, common, metric), _columns(theirs, common, metric))


def paired_by_data(pairs: Sequence[tuple[UserScores, UserScores]], data: Sequence[str], metric: str) -> list[Pairs]:
    """One population for each data set: seeds with the same data have the same users, who are resampled together.

    `pairs` are both contestants' scores by seed, `data` the digest of each seed's data.
    """
    populations = []
    for digest in dict.fromkeys(data):
        same = [pair for pair, own in zip(pairs, data, strict=True) if own == digest]
        populations.append(paired([ours for ours, _ in same], [theirs for _, theirs in same], metric))
    return populations


def of_common_users(ours: UserScores, theirs: UserScores, metric: str) -> tuple[dict[str, float], dict[str, float]]:
    """Both contestants' statistics over the users for whom the metric is defined under both."""
    common = _common_users((ours, theirs), metric)
    return ours.among(common).summary(metric), theirs.among(common).summary(metric)


def _common_users(scores: Sequence[UserScores], metric: str) -> np.ndarray:
    """The users for whom the metric is defined in all of these, in ascending order."""
    scored = [set(users.clients[users.scored(metric)].tolist()) for users in scores]
    return np.array(sorted(set.intersection(*scored)), dtype=np.int64)


def _columns(scores: Sequence[UserScores], clients: np.ndarray, metric: str) -> np.ndarray:
    rows = []
    for users in scores:
        order = np.argsort(users.clients)
        rows.append(users.values[metric][order[np.searchsorted(users.clients, clients, sorter=order)]])
    return np.array(rows)


def _resampled(pairs: Pairs, population: int, statistic: str, lower: bool, interpolated: bool) -> np.ndarray:
    users = pairs.ours.shape[1]
    random = generator(0, "bootstrap", population, users)
    chunk = max(1, _AT_ONCE // users)
    found = []
    for start in range(0, DRAWS, chunk):
        chosen = random.integers(0, users, (min(chunk, DRAWS - start), users))
        found.append(_difference(pairs, chosen, statistic, lower, interpolated))
    return np.concatenate(found)


def _difference(pairs: Pairs, chosen: np.ndarray, statistic: str, lower: bool, interpolated: bool) -> np.ndarray:
    """Ours minus theirs for each resample (a row of `chosen`), averaged over seeds."""
    by_seed = [
        _statistic(ours[chosen], statistic, lower, interpolated)
        - _statistic(theirs[chosen], statistic, lower, interpolated)
        for ours, theirs in zip(pairs.ours, pairs.theirs, strict=True)
    ]
    mean: np.ndarray = np.mean(by_seed, axis=0)
    return mean


def _statistic(values: np.ndarray, statistic: str, lower: bool, interpolated: bool) -> np.ndarray:
    """`UserScores.summary`'s statistics, along the last axis."""
    if statistic == "mean":
        found: np.ndarray = values.mean(-1)
    elif statistic == "std":
        found = values.std(-1)
    else:
        found = bottom_decile(values, lower, interpolated)
    return found
