"""FedDecay's convergence bound for strongly convex clients, and the learning rate that earns it.

The theorem as printed does not hold; these are the constants its proof gives once repaired:

* the distance term carries a factor mu, as in Li et al. (2020), Theorem 1, which the proof extends. The paper's step
  from `v` to `(2/mu)(...)` loses it, and the printed bound fails on quadratics with mu > 1;
* D carries `(G K b_0 / b_{K-1})^2` (Lemma 5), which the paper's equation 14 leaves out;
* `c = 3 / (mu b_{K-1})`, not `3 / (mu b_{K-1} - 2)`;
* the proof scales b so that b_0 = 1. Done here for any b, it puts b_{K-1} / b_0 where the paper has b_{K-1}:
  with b_0 > 1 the printed d allows steps longer than 1 / (4 L).

A sequence that ends in zeros (beta = 0, linear decay) counts up to its last positive entry, as in the proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedtempo.errors import is_count, is_number, require
from fedtempo.schedules import Schedule, inverse_time
from fedtempo.schedules import sequence as sequence_schedule


@dataclass(frozen=True)
class StronglyConvex:
    """What assumptions 1 to 4 of FedDecay's theorem say about a problem, uniform over its clients."""

    strong_convexity: float
    """mu: every F_i is mu-strongly convex."""
    smoothness: float
    """L: every F_i has an L-Lipschitz gradient."""
    gradient_bound: float
    """G: no stochastic gradient's expected squared norm exceeds G^2 on the way."""
    gamma: float
    """Gamma = F* - sum_i p_i F_i*: how differently the clients' data are distributed."""
    weighted_variance: float = 0.0
    """sum_i p_i^2 sigma_i^2: the variance of the averaged stochastic gradient."""

    def __post_init__(self) -> None:
        mu, smooth = self.strong_convexity, self.smoothness
        require(is_number(mu) and mu > 0, "strong_convexity", "a number > 0", mu)
        require(is_number(smooth) and smooth >= mu, "smoothness", f"a number >= strong_convexity ({mu})", smooth)
        for name in ("gradient_bound", "gamma", "weighted_variance"):
            value = getattr(self, name)
            require(is_number(value) and value >= 0, name, "a number >= 0", value)

    @property
    def condition_number(self) -> float:
        """The condition number kappa = L / mu."""
        return self.smoothness / self.strong_convexity


def rate_constants(factors: Sequence[float], strong_convexity: float, smoothness: float) -> tuple[float, float]:
    """The constants c and d of FedDecay's across-round decay `alpha_n = c / (n + d)` (Theorem 1).

        c = 3 / (mu b_{K-1}),    d = max(12 kappa b_0 / b_{K-1}, 4 - 2 / K)

    >>> rate_constants([1.0, 0.5], strong_convexity=1.0, smoothness=2.0)
    (6.0, 48.0)
    """
    b = _positive_part(factors)
    problem = StronglyConvex(strong_convexity, smoothness, 0.0, 0.0)
    c = 3 / (strong_convexity * b[-1])
    return c, max(12 * problem.condition_number * b[0] / b[-1], 4 - 2 / len(b))


def convergent_lr(factors: Sequence[float], strong_convexity: float, smoothness: float) -> Schedule:
    """FedDecay's learning rate of Theorem 1, `alpha_n b_k` in step k of round n, as a schedule.

    >>> from fedtempo.schedules import Now
    >>> convergent_lr([1.0, 0.5], 1.0, 2.0).at(Now(round=2, step=1))
    0.06
    """
    b = _positive_part(factors)
    padded = [*b, *([0.0] * (len(factors) - len(b)))]
    return inverse_time(*rate_constants(b, strong_convexity, smoothness)) * sequence_schedule(padded)


def local_noise(problem: StronglyConvex, factors: Sequence[float]) -> float:
    """B of FedDecay's equation 13: `sum p_i^2 sigma_i^2 + 6 L Gamma + 2 (G (K-1) b_0 / b_{K-1})^2`."""
    b = _positive_part(factors)
    drift = problem.gradient_bound * (len(b) - 1) * b[0] / b[-1]
    return problem.weighted_variance + 6 * problem.smoothness * problem.gamma + 2 * drift**2


def participation_noise(problem: StronglyConvex, factors: Sequence[float], clients: int, cohort: int) -> float:
    """D of FedDecay's Theorem 2 (equation 14), corrected: `(M - S) / (S (M - 1)) (G K b_0 / b_{K-1})^2`.

    A cohort of S out of M clients, drawn uniformly without replacement, with p_i = 1 / M. The paper's D lacks the
    second factor, and its Lemma 5 has K (M - 1) for S (M - 1) and b_{K-1} for its inverse.
    """
    require(is_count(clients), "clients", "an int >= 1", clients)
    require(is_count(cohort) and cohort <= clients, "cohort", f"an int in [1, {clients}]", cohort)
    if cohort == clients:
        return 0.0
    b = _positive_part(factors)
    reach = problem.gradient_bound * len(b) * b[0] / b[-1]
    return (clients - cohort) / (cohort * (clients - 1)) * reach**2


def convergence_bound(
    problem: StronglyConvex,
    factors: Sequence[float],
    *,
    rounds: int,
    distance: float,
    clients: int = 1,
    cohort: int | None = None,
) -> float:
    """An upper bound on `E[F(x_N)] - F*` after N rounds of FedDecay with `convergent_lr`.

        kappa / (N + d - 2) * (9 (B + D) b_0^2 / (2 mu b_{K-1}^2) + mu (d - 2 + 1/K) / 2 ||x_0 - x*||^2)

    FedDecay, Theorem 1 (equation 12) and, with `cohort` < `clients`, Theorem 2 of the short version; corrected as
    this module's docstring says. `distance` is ||x_0 - x*||.

    >>> problem = StronglyConvex(1.0, 1.0, gradient_bound=1.0, gamma=0.0)
    >>> round(convergence_bound(problem, [1.0], rounds=90, distance=1.0), 6)
    0.055
    """
    require(is_count(rounds, 0), "rounds", "an int >= 0", rounds)
    require(is_number(distance) and distance >= 0, "distance", "a number >= 0", distance)
    b = _positive_part(factors)
    mu = problem.strong_convexity
    _, d = rate_constants(b, mu, problem.smoothness)
    noise = local_noise(problem, b) + participation_noise(problem, b, clients, cohort or clients)
    variance_term = 9 * noise * (b[0] / b[-1]) ** 2 / (2 * mu)
    distance_term = mu * (d - 2 + 1 / len(b)) / 2 * distance**2
    return problem.condition_number / (rounds + d - 2) * (variance_term + distance_term)


def _positive_part(factors: Sequence[float]) -> list[float]:
    b = [float(factor) for factor in factors]
    while b and b[-1] == 0:
        b.pop()
    falling = all(later <= earlier for earlier, later in pairwise(b))
    require(bool(b) and all(map(is_number, b)) and falling, "factors", "positive and never rising", list(factors))
    require(b[-1] > 0, "factors", "positive and never rising", list(factors))
    return b
