"""The bootstrap over seeds and users: against every resample there is, written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fedtempo.comparison.bootstrap import over_seeds_and_users
from fedtempo.comparison.intervals import Pairs, over_users

GAPS = np.array([[0.10, 0.04], [0.01, -0.05]])


def pairs_of(gaps: np.ndarray) -> Pairs:
    return Pairs(0.5 + gaps, np.full_like(gaps, 0.5))


def ends_of(values: list[float]) -> tuple[float, float]:
    """Of the distribution in which all values are equally likely."""
    many = np.repeat(values, 1000)
    return float(np.quantile(many, 0.025)), float(np.quantile(many, 0.975))


def test_same_users_in_all_seeds_are_drawn_once() -> None:
    """Two seeds, two users: 4 draws of seeds times 4 draws of users, all equally likely."""
    both = [*itertools.product(range(2), repeat=2)]
    every = [float(np.mean([[GAPS[s, u] for u in users] for s in seeds])) for seeds in both for users in both]
    found = over_seeds_and_users([pairs_of(GAPS)], draws=20_000)
    assert found.value == pytest.approx(0.025)
    assert (found.low, found.high) == pytest.approx(ends_of(every), abs=1e-9)
    # A seed drawn twice with its worse user twice: the smallest of all, and likely enough to be the end.
    assert (found.low, found.high) == pytest.approx((-0.05, 0.10))


def test_seeds_with_other_data_draw_their_own_users() -> None:
    both = [*itertools.product(range(2), repeat=2)]
    every = [
        float(np.mean([np.mean([GAPS[s, u] for u in users[s]]) for s in seeds]))
        for seeds in both
        for users in itertools.product(both, repeat=2)
    ]
    found = over_seeds_and_users([pairs_of(GAPS[:1]), pairs_of(GAPS[1:])], draws=20_000)
    assert (found.low, found.high) == pytest.approx(ends_of(every), abs=1e-9)


def test_many_seeds_and_users_have_the_spread_of_a_sum_of_two_means() -> None:
    """The variance of a mean over seeds and one over users add up, and the interval is 1.96 of its root either way."""
    random = np.random.default_rng(0)
    gaps = 2 * random.standard_normal((60, 1)) + random.standard_normal((1, 80))
    found = over_seeds_and_users([pairs_of(gaps)], draws=4000)
    spread = math.sqrt(gaps.mean(1).var() / 60 + gaps.mean(0).var() / 80)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * spread, rel=0.06)


def test_what_cannot_be_resampled_has_no_interval() -> None:
    assert math.isnan(over_seeds_and_users([]).value)
    assert math.isnan(over_seeds_and_users([pairs_of(np.zeros((2, 0)))]).value)
    alone = over_seeds_and_users([pairs_of(GAPS[:1])])
    assert alone.value == pytest.approx(0.07)
    assert math.isnan(alone.low)
    one_user = pairs_of(GAPS[:, :1])
    assert math.isnan(over_seeds_and_users([one_user]).low)
    assert math.isnan(over_users([one_user], "mean", lower=False).low)
    # Users of other data are other users.
    assert not math.isnan(over_seeds_and_users([pairs_of(GAPS[:1, :1]), pairs_of(GAPS[1:, 1:])]).low)


def test_the_same_numbers_each_time() -> None:
    assert over_seeds_and_users([pairs_of(GAPS)]) == over_seeds_and_users([pairs_of(GAPS)])
