"""What can be told of a federation before training: how much its clients differ, and what local steps do to that.

Nothing is suggested from these numbers. Rules that led from them to a beta, a decay of K and a weight decay were tried
on data that they were not made on and did not pay (docs/personalization.md). The rules for beta and K, and their test,
are in `benchmarks/advice.py` and `benchmarks/stored_advice.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedtempo.errors import is_count, is_number, require
from fedtempo.theory.ratio import fedavg_ratio
from fedtempo.theory.surrogate import surrogate_eigenvalue

TESTED = (
    "No beta and no decay of K follows from these numbers: rules that led from them to settings did not pay on data "
    "that they were not made on. With tuned rates the suggested beta was nowhere shown to beat FedAvg. K was decayed "
    "where that lost (FEMNIST, K = 3), and kept in three cases where decaying it took 27 to 29 % fewer steps to a "
    "level score. Try both with `fedtempo compare --tune`."
)
"""What came of rules from these numbers to settings (benchmarks/stored_advice.py)."""


@dataclass(frozen=True)
class Measurements:
    """How much the clients differ, and the training that is planned for them.

    >>> alike = Measurements(0.0, 1.0, 1.0, lr=0.1, steps=10, rounds=100)
    >>> alike.drift, alike.ratio
    (0.0, 0.45)
    """

    disagreement: float | None
    """Share of the clients' squared gradients that comes from different data, in [0, 1]; None if it can't be told."""
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
    too_large_for_gamma: int = 0
    """The parameters of a convex model that is too large to look for Gamma; 0 where it was looked for or has none."""

    def __post_init__(self) -> None:
        share, diversity = self.disagreement, self.gradient_diversity
        known = share is None or (is_number(share) and 0 <= share <= 1)
        require(known, "disagreement", "a number in [0, 1], or None", share)
        require(diversity >= 1 - 1e-6, "gradient_diversity", "a number >= 1", diversity)
        require(is_number(self.lr) and self.lr > 0, "lr", "a number > 0", self.lr)
        require(is_number(self.smoothness), "smoothness", "a finite number", self.smoothness)
        for name in ("steps", "rounds", "clients"):
            require(is_count(getattr(self, name)), name, "an int >= 1", getattr(self, name))

    @property
    def drift(self) -> float | None:
        """That of the planned local steps; None where the disagreement can't be told."""
        return drift(self, self.steps)

    @property
    def ratio(self) -> float:
        """FedAvg's personalization ratio R at the planned steps and rate."""
        return fedavg_ratio(self.steps, self.lr)

    @property
    def findings(self) -> tuple[str, ...]:
        """The numbers as sentences."""
        return (_difference(self), _personalization(self), _drift(self), *_warnings(self))

    def __str__(self) -> str:
        return "\n".join(f"- {sentence}" for sentence in (*self.findings, TESTED))


def drift(measurements: Measurements, steps: int) -> float | None:
    """`disagreement (K L / phi_L(lr, K) - 1)`: how far K local steps shift the balance between clients; 0 for K = 1.

    K L / phi_L is 1 if K steps count like K separate ones, and K once the steepest direction is settled in one step
    (decaying-K paper, equations 6 and 7). Steps longer than 1/L are counted as 1/L, the longest that equation 7 allows.
    None where the disagreement can't be told.
    """
    if measurements.disagreement is None:
        return None
    smooth = min(max(measurements.smoothness, 0.0), 1 / measurements.lr)
    if smooth == 0:
        return 0.0
    weakened = steps * smooth / surrogate_eigenvalue(smooth, measurements.lr, steps)
    return measurements.disagreement * (weakened - 1)


def _difference(m: Measurements) -> str:
    gap = "" if m.gamma is None else f" Gamma is {m.gamma:.3g} (where rows are few it says little)."
    if m.too_large_for_gamma:
        gap = f" Gamma was not looked for: with {m.too_large_for_gamma:,} parameters it takes minutes (--gamma)."
    found = f"{m.clients} clients: gradient diversity {m.gradient_diversity:.2f}"
    if m.disagreement is None:
        return f"{found}; with one row per client nobody can tell whether it comes from different data.{gap}"
    return (
        f"{found}, of which {m.disagreement:.0%} comes from different data and the rest from few rows per client.{gap}"
    )


def _personalization(m: Measurements) -> str:
    return (
        f"the personalization ratio R is {m.ratio:.3g} with FedAvg's {m.steps} steps of {m.lr:g} and 0 with FedSGD's "
        "one; FedDecay's beta moves it between the two."
    )


def _drift(m: Measurements) -> str:
    shift = "can't be told" if m.drift is None else f"is {m.drift:.3g}"
    return f"the drift of K = {m.steps} {shift} at curvature L = {m.smoothness:.3g}; that of K = 1 is 0."


def _warnings(m: Measurements) -> Iterator[str]:
    if m.lr * m.smoothness > 1:
        yield (
            f"the learning rate {m.lr:g} is above 1/L = {1 / m.smoothness:.3g}: the theory behind the drift does not "
            "reach that far, and training may be unstable."
        )
