"""PFLEGO's Proposition 2: how fast exact SGD on body and heads converges when only some clients take part.

The proposition promises linear speed-up in the number of clients I. Its own rate rho = sqrt(r) / (L sqrt(T)) gives
O(sqrt(I / T)), which grows with I. The bound behind it is right, and the rate that minimises it has no such factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedtempo.errors import is_count, is_number, require


def gradient_growth(shares: Sequence[float], cohort: float) -> float:
    """(I sum_i a_i^2 + r sum_{i != j} a_i a_j) / r: by how much sampling stretches the squared gradient.

    PFLEGO, proof of Proposition 2, with a_i = `shares` and r = `cohort`: E||g||^2 <= G^2 times this for a cohort of
    fixed size or of independent clients. Everybody present makes it (sum_i a_i)^2.

    >>> gradient_growth([0.5, 0.5], cohort=2), gradient_growth([0.5, 0.5], cohort=1)
    (1.0, 1.5)
    """
    count = len(shares)
    require(count > 0 and all(is_number(a) and a >= 0 for a in shares), "shares", "numbers >= 0", list(shares))
    require(is_number(cohort) and 0 < cohort <= count, "cohort", f"a number in (0, {count}]", cohort)
    squares = sum(a * a for a in shares)
    crossed = sum(shares) ** 2 - squares
    return (count * squares + cohort * crossed) / cohort


def gradient_bound(
    gap: float,
    smoothness: float,
    largest_gradient: float,
    shares: Sequence[float],
    cohort: float,
    rounds: int,
    lr: float,
) -> float:
    """An upper bound on the mean of E||grad L(theta_t)||^2 over T rounds of PFLEGO with server rate rho = `lr`.

        (L_0 - L*) / (rho T) + (L rho G^2 / 2) (I sum a_i^2 + r sum_{i != j} a_i a_j) / r

    PFLEGO, Proposition 2 before a rate is put in: `gap` is L_0 - L*, `largest_gradient` is G. The proposition assumes
    heads at their optimum, and lets a client take head steps of rate below 2 / L.
    """
    require(is_count(rounds), "rounds", "an int >= 1", rounds)
    require(is_number(lr) and lr > 0, "lr", "a number > 0", lr)
    return gap / (lr * rounds) + smoothness * lr * largest_gradient**2 / 2 * gradient_growth(shares, cohort)


def proposed_lr(smoothness: float, cohort: float, rounds: int) -> float:
    """The server rate of Proposition 2, `rho = sqrt(r) / (L sqrt(T))`.

    >>> proposed_lr(2.0, cohort=4, rounds=100)
    0.1
    """
    return math.sqrt(cohort) / (smoothness * math.sqrt(rounds))


def best_lr(
    gap: float, smoothness: float, largest_gradient: float, shares: Sequence[float], cohort: float, rounds: int
) -> float:
    """The server rate that minimises `gradient_bound`: `sqrt(2 (L_0 - L*) / (L G^2 growth T))`."""
    growth = gradient_growth(shares, cohort)
    return math.sqrt(2 * gap / (smoothness * largest_gradient**2 * growth * rounds))
