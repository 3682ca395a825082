"""An adviser: from what was measured to suggestions for beta and the decay of K, with reasons.

It is a heuristic. The papers say in which direction each number should go; how far is our own plain rule, written
below, without tuning on any benchmark. Take it as a first guess for a search, not as a result: with tuned rates the
suggested beta made no difference that could be told on digits (`benchmarks/advice.py`, docs/personalization.md). It
once suggested a weight decay too, which gained nothing there and was left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fedtempo.client.phase import Length
from fedtempo.errors import is_count, is_number, require
from fedtempo.schedules import Now, decaying_k
from fedtempo.theory.ratio import beta_for_ratio, fedavg_ratio, feddecay_ratio
from fedtempo.theory.surrogate import surrogate_eigenvalue

TOLERATED_DRIFT = 0.1
"""Local steps may change the balance between clients by this share before K is made smaller."""
SMALLEST_BETA = 0.2
"""The smallest beta that the FedDecay papers found best; at 0 all local steps but the first would do nothing."""
FEWEST_DIGITS = 5
"""Decimals of a suggested decay of K; it gets more where fewer would not bring K to where it should go."""
TESTED = (
    "a first guess for a search, not a result: with every rate tuned, the suggested beta was not seen to beat FedAvg "
    "on digits, no beta was on Fashion-MNIST, and K decay saved local steps without a gain in accuracy that could be "
    "told."
)
"""What came of it when it was tried (benchmarks/advice.py)."""


@dataclass(frozen=True)
class Measurements:
    """What the adviser goes by: the clients, and the training that is planned for them."""

    disagreement: float
    """Share of the clients' squared gradients that comes from different data, in [0, 1]."""
    gradient_diversity: float
    """sum p_i ||g_i||^2 / ||sum p_i g_i||^2, as it is reported elsewhere; 1 or more."""
    smoothness: float
    """L: the largest eigenvalue of the mean loss's Hessian."""
    lr: float
    steps: int
    rounds: int
    gamma: float | None = None
    """F* - sum p_i F_i*, where the model is convex."""
    clients: int = 1
    """How many clients were looked at."""

    def __post_init__(self) -> None:
        share, diversity = self.disagreement, self.gradient_diversity
        require(is_number(share) and 0 <= share <= 1, "disagreement", "a number in [0, 1]", share)
        require(diversity >= 1 - 1e-6, "gradient_diversity", "a number >= 1", diversity)
        require(is_number(self.lr) and self.lr > 0, "lr", "a number > 0", self.lr)
        require(is_number(self.smoothness), "smoothness", "a finite number", self.smoothness)
        for name in ("steps", "rounds", "clients"):
            require(is_count(getattr(self, name)), name, "an int >= 1", getattr(self, name))


@dataclass(frozen=True)
class Advice:
    """Suggested settings, why, and the numbers they rest on."""

    beta: float
    """FedDecay's within-round factor: 0 is FedSGD, 1 is FedAvg."""
    k_decay: float
    """d in K_t = ceil(K_0 d^t); 1 keeps K."""
    reasons: tuple[str, ...]
    measurements: Measurements

    def __str__(self) -> str:
        head = f"beta = {self.beta:g}, K decay = {self.k_decay:.15g}"
        return "\n".join([head, *(f"- {reason}" for reason in self.reasons), f"- {TESTED}"])


def advise(measurements: Measurements) -> Advice:
    """Suggested beta and K decay for these measurements, each with its reason; always the same.

    * beta: R is set to `disagreement` times FedAvg's R (FedDecay: similar clients want small R, diverse ones large),
      but beta never goes below 0.2.
    * K decay: K falls, over the first half of the rounds, to the largest K whose drift
      `disagreement (K L / phi_L(lr, K) - 1)` is at most 0.1 (decaying-K paper, equations 6 and 7: the factor by which
      K steps weaken steep directions against flat ones).

    These are rules of thumb, not theorems.

    >>> alike = Measurements(0.0, 1.0, 1.0, lr=0.1, steps=10, rounds=100)
    >>> advise(alike).beta, advise(alike).k_decay
    (0.2, 1.0)
    """
    beta, k_decay = _beta(measurements), _k_decay(measurements)
    reasons = (
        _why_measured(measurements),
        _why_beta(measurements, beta),
        _why_k(measurements, k_decay),
        *_warnings(measurements),
    )
    return Advice(beta, k_decay, reasons, measurements)


def drift(measurements: Measurements, steps: int) -> float:
    """`disagreement (K L / phi_L(lr, K) - 1)`: how far K local steps shift the balance between clients; 0 for K = 1.

    K L / phi_L is 1 if K steps count like K separate ones, and K once the steepest direction is settled in one step.
    Steps longer than 1/L are counted as 1/L, the longest that the decaying-K paper's equation 7 allows.
    """
    smooth = min(max(measurements.smoothness, 0.0), 1 / measurements.lr)
    if smooth == 0:
        return 0.0
    weakened = steps * smooth / surrogate_eigenvalue(smooth, measurements.lr, steps)
    return measurements.disagreement * (weakened - 1)


def last_steps(measurements: Measurements) -> int:
    """The largest K, of those planned, whose `drift` is tolerated; 1 always is."""
    allowed = (k for k in range(measurements.steps, 1, -1) if drift(measurements, k) <= TOLERATED_DRIFT)
    return next(allowed, 1)


def _beta(m: Measurements) -> float:
    if m.steps == 1:
        return 1.0
    wanted = beta_for_ratio(m.disagreement * fedavg_ratio(m.steps, m.lr), m.steps, m.lr)
    return max(SMALLEST_BETA, round(wanted, 2))


def _k_decay(m: Measurements) -> float:
    """The decay that brings K to `last_steps` after half of the rounds, with as few digits as that takes."""
    half, last = max(1, m.rounds // 2), last_steps(m)
    exact = float((last / m.steps) ** (1 / half))
    for digits in range(FEWEST_DIGITS, 18):
        # Rounded up, a decay may leave K one step above what is said; rounded down, many steps may end up below.
        unit = 10.0**-digits
        for decay in (round(exact, digits), round(math.floor(exact / unit) * unit, digits)):
            if 0 < decay <= 1 and Length(decaying_k(m.steps, decay)).units(Now(round=half)) == last:
                return decay
    return exact


def _why_measured(m: Measurements) -> str:
    gap = "" if m.gamma is None else f" Gamma is {m.gamma:.3g} (only reported: where rows are few it says little)."
    return (
        f"{m.clients} clients: gradient diversity {m.gradient_diversity:.2f}, of which {m.disagreement:.0%} comes from "
        f"different data and the rest from few rows per client.{gap}"
    )


def _why_beta(m: Measurements, beta: float) -> str:
    if m.steps == 1:
        return "beta does nothing with one local step."
    ratio, most = feddecay_ratio(beta, m.steps, m.lr), fedavg_ratio(m.steps, m.lr)
    floor = f" It would be smaller, but {SMALLEST_BETA:g} is the least we suggest." if beta == SMALLEST_BETA else ""
    return (
        f"beta {beta:g} gives a personalization ratio R of {ratio:.3g} (FedSGD 0, FedAvg {most:.3g} at {m.steps} steps "
        f"of {m.lr:g}); the clients' disagreement asks for {m.disagreement:.0%} of FedAvg's.{floor}"
    )


def _why_k(m: Measurements, k_decay: float) -> str:
    shift, limit = drift(m, m.steps), TOLERATED_DRIFT
    if k_decay == 1:
        return f"K may stay at {m.steps}: its drift is {shift:.3g}, at most {limit:g} is tolerated."
    return (
        f"K = {m.steps} has a drift of {shift:.3g} at curvature L = {m.smoothness:.3g}, more than {limit:g}; decaying "
        f"by {k_decay:.15g} a round brings K to {last_steps(m)} after half of the {m.rounds} rounds."
    )


def _warnings(m: Measurements) -> Iterator[str]:
    if m.lr * m.smoothness > 1:
        yield (
            f"the learning rate {m.lr:g} is above 1/L = {1 / m.smoothness:.3g}: the theory behind the K rule does not "
            "reach that far, and training may be unstable."
        )
