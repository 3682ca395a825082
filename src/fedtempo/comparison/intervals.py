"""Intervals from a paired bootstrap over users; those over seeds are in `evaluation.over_seeds`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedtempo.evaluation.over_seeds import LEVEL, Estimate
from fedtempo.evaluation.protocol import UserScores, bottom_decile
from fedtempo.randomness import generator

DRAWS = 2000
_AT_ONCE = 4_000_000
"""Resampled values held at a time."""


@dataclass(frozen=True)
class Pairs:
    """Users of one population, scored under two contestants with one or several seeds.

    `ours` and `theirs` have shape (seeds, users): the same user in the same column.
    """

    ours: np.ndarray
    theirs: np.ndarray


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
