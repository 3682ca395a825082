"""Epsilon: against second calculations, exact values of one round, published bounds, and laws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

import fedtempo as ft
from fedtempo.server.privacy_accounting import FIXED_SIZE_ORDERS, spent, without_replacement
from fedtempo.server.robust import epsilon
from tests.later import Later

rdp, optimize, stats = Later("opacus.accountants.analysis.rdp"), Later("scipy.optimize"), Later("scipy.stats")

DELTA = 1e-5


def exact_gaussian(multiplier: float, rate: float = 1.0, delta: float = DELTA) -> float:
    """One Gaussian mean, exactly: Balle and Wang (2018), and for cohorts without replacement Balle et al. (2018)."""

    def failure(eps: float) -> float:
        shift = eps * multiplier
        tail = stats.norm.cdf(0.5 / multiplier - shift) - math.exp(eps) * stats.norm.cdf(-0.5 / multiplier - shift)
        return math.log(max(rate * tail, 1e-300) / delta)

    return math.log1p(rate * math.expm1(optimize.brentq(failure, 1e-9, 300.0)))


def published_bound(rate: float, multiplier: float, order: int) -> float:
    """Theorem 9 of Wang, Balle and Kasiviswanathan (2019) for the Gaussian mechanism."""
    j = np.arange(2, order + 1)
    logs = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1) + j * math.log(rate)
    logs += math.log(2) + (j - 1) * j / (2 * multiplier**2)
    two = 1 / multiplier**2
    logs[0] += min(0.0, math.log(2) + math.log(-math.expm1(-two)))
    return float(logsumexp([0.0, *logs])) / (order - 1)


CASES = [(0.01, 2.5), (0.01, 0.4), (0.1, 1.0), (0.1, 4.0), (0.5, 2.5), (0.9, 0.7)]


@pytest.mark.parametrize(("rate", "multiplier"), CASES)
def test_fixed_sizes_lie_between_what_is_known_to_be_reached_and_the_published_bound(
    rate: float, multiplier: float
) -> None:
    """Below: M from Q alone, which Opacus works out. Above: Wang et al., and no sampling at all."""
    ours = np.array(without_replacement(rate, multiplier))
    orders = list(FIXED_SIZE_ORDERS)
    reached = rdp.compute_rdp(q=rate, noise_multiplier=multiplier, steps=1, orders=orders)
    assert (ours >= reached * (1 - 1e-6)).all()
    assert (ours <= 2 * reached * (1 + 1e-6)).all()
    whole = [index for index, order in enumerate(orders) if order == int(order)]
    assert all(ours[i] <= published_bound(rate, multiplier, int(orders[i])) * (1 + 1e-9) for i in whole)
    assert (ours <= np.array(orders) / (2 * multiplier**2) + 1e-12).all()


def test_a_cohort_of_everybody_is_no_sample() -> None:
    plain = np.array(FIXED_SIZE_ORDERS) / (2 * 1.5**2)
    assert np.array(without_replacement(1.0, 1.5)) == pytest.approx(plain)
    both = [epsilon(3.0, 7, 1.0, DELTA, sampling=how) for how in ("fixed-size", "none")]  # type: ignore[arg-type]
    assert both[0] == pytest.approx(both[1], rel=0.01)


@pytest.mark.parametrize("noise", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_one_round_is_never_below_its_exact_epsilon(noise: float, rate: float) -> None:
    """Under replacement the sensitivity is twice the bound; an accountant by Renyi divergences is a little above."""
    exact = exact_gaussian(noise / 2, rate)
    ours = epsilon(noise, 1, rate, DELTA, sampling="fixed-size")
    assert exact <= ours <= 1.6 * exact + 0.1


def test_replacing_costs_what_half_the_noise_costs() -> None:
    for rounds in (1, 10, 100):
        replaced = epsilon(4.0, rounds, 1.0, DELTA, sampling="none", adjacency="replace-one")
        assert replaced == epsilon(2.0, rounds, 1.0, DELTA, sampling="none", adjacency="add-remove")
        assert replaced == epsilon(4.0, rounds, 1.0, DELTA, sampling="none")


@pytest.mark.parametrize(
    ("noise", "rounds", "rate", "poisson", "fixed"),
    [(1.0, 100, 0.1, 7.899, 37.99), (4.0, 1000, 0.1, 3.736, 10.23), (8.0, 1000, 0.1, 1.692, 4.026)],
)
def test_the_same_rate_is_not_the_same_guarantee(
    noise: float, rounds: int, rate: float, poisson: float, fixed: float
) -> None:
    """Cohorts of fixed size were given the number of Poisson cohorts, which is up to five times too small."""
    assert epsilon(noise, rounds, rate, DELTA) == pytest.approx(poisson, rel=1e-3)
    assert epsilon(noise, rounds, rate, DELTA, sampling="fixed-size") == pytest.approx(fixed, rel=1e-3)


def test_the_prv_accountant_is_tighter_and_never_below_the_exact_value() -> None:
    loose, tight = (epsilon(2.0, 1, 1.0, DELTA, accountant=name) for name in ("rdp", "prv"))  # type: ignore[arg-type]
    assert exact_gaussian(2.0) <= tight <= loose


def test_rounds_of_different_sizes_add_up() -> None:
    """More of either costs more, and the order of rounds does not matter."""
    few, many = ((0.1, 10),), ((0.1, 10), (0.2, 5))
    costs = [spent(2.0, rates, DELTA, "poisson", "add-remove") for rates in (few, many, many[::-1])]
    assert costs[0] < costs[1] == pytest.approx(costs[2])
    assert spent(2.0, ((0.1, 4), (0.1, 6)), DELTA, "poisson", "add-remove") == pytest.approx(costs[0])


GOOD: dict[str, Any] = {"noise": 1.0, "rounds": 10, "rate": 0.1, "delta": DELTA}
WRONG = [
    ({"rounds": -5}, "rounds must be an int >= 1. Got -5"),
    ({"rounds": 0}, "rounds must be an int >= 1"),
    ({"rounds": 2.5}, "rounds must be an int >= 1"),
    ({"rounds": True}, "rounds must be an int >= 1"),
    ({"noise": 0.0}, "noise must be"),
    ({"rate": 0.0}, "rate must be"),
    ({"rate": 1.5}, "rate must be"),
    ({"delta": 0.0}, "delta must be"),
    ({"sampling": "shuffled"}, "sampling must be 'poisson' or 'fixed-size' or 'none'"),
    ({"adjacency": "replace-one"}, "adjacency must be 'add-remove' for 'poisson' sampling"),
    ({"sampling": "fixed-size", "adjacency": "add-remove"}, "adjacency must be 'replace-one'"),
    ({"sampling": "none"}, "rate must be 1 without sampling"),
    ({"sampling": "fixed-size", "accountant": "prv"}, "accountant must be 'rdp'"),
    ({"accountant": "guess"}, "accountant must be 'rdp' or 'prv'"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ft.ConfigError, match=message):
        epsilon(**{**GOOD, **changes})
