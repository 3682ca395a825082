"""FedNAR's Condition 1 and Theorems 1 and 2: what bounds the model's norm, and what weight decay costs in the limit.

A local step is x <- (1 - mu_t(g, x)) x - lambda_t(g, x) g. The functions here take lambda and mu as functions of
(round, gradient, weights), with both as flat tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor

from fedtempo.errors import is_count, is_number, require

Chosen = Callable[[int, Tensor, Tensor], float]
"""lambda or mu: (round, gradient, weights) -> a number."""


def co_clipped(lr: Callable[[int], float], decay: Callable[[int], float], max_norm: float) -> tuple[Chosen, Chosen]:
    """lambda_t and mu_t of FedNAR's equations 3 and 4: l_t s and u_t s with s = min(1, A / ||g + (u_t / l_t) x||).

    >>> import torch
    >>> rate, _ = co_clipped(lambda t: 0.1, lambda t: 0.0, max_norm=1.0)
    >>> rate(0, torch.tensor([2.0]), torch.tensor([5.0]))
    0.05
    """

    def share(t: int, gradient: Tensor, weights: Tensor) -> float:
        length = float((gradient + decay(t) / lr(t) * weights).norm())
        return min(1.0, max_norm / length) if length > 0 else 1.0

    return lambda t, g, x: lr(t) * share(t, g, x), lambda t, g, x: decay(t) * share(t, g, x)


@dataclass(frozen=True)
class Condition:
    """How far lambda and mu are from breaking Condition 1 on the points that were tried; both must be >= 0."""

    step_margin: float
    """A minus the longest ||lambda g + mu x||."""
    decay_margin: float
    """The smallest u_t - mu_t."""

    @property
    def holds(self) -> bool:
        """Whether no point breaks the condition."""
        return self.step_margin >= 0 and self.decay_margin >= 0


def check_condition(
    rate: Chosen, decay: Chosen, points: Iterable[tuple[int, Tensor, Tensor]], *, step: float, u0: float, gamma: float
) -> Condition:
    """Condition 1 on given points (round, gradient, weights): ||lambda g + mu x|| <= `step`, mu <= u_0 gamma^t.

    For equations 3 and 4 the paper's A of the condition is max_t l_t times the A that clips: pass that product as
    `step`. The condition is about all points; a run can only be checked on its own.
    """
    require(is_number(gamma) and 0 <= gamma < 1, "gamma", "a number in [0, 1)", gamma)
    lengths, decays = [0.0], [0.0]
    for t, gradient, weights in points:
        by, off = rate(t, gradient, weights), decay(t, gradient, weights)
        lengths.append(float((by * gradient + off * weights).norm()))
        decays.append(off - u0 * gamma**t)
    # Rounding makes a step of exactly A a little longer.
    slack = 1e-12 * max(step, 1.0)
    return Condition(step + slack - max(lengths), slack - max(decays))


def norm_bound(start: float, rounds: int, *, step: float, steps: int, server_lr: float = 1.0) -> float:
    """An upper bound on ||x_t|| under Condition 1: `||x_0|| + lambda_g tau A t`.

    FedNAR, Theorem 1, which says "polynomial in t": every local step is at most A = `step` long, so a round moves the
    model by at most lambda_g tau A, and the polynomial has degree one.

    >>> norm_bound(1.0, rounds=10, step=0.1, steps=5)
    6.0
    """
    require(is_number(start) and start >= 0, "start", "a number >= 0", start)
    require(is_count(rounds, 0), "rounds", "an int >= 0", rounds)
    require(is_count(steps), "steps", "an int >= 1", steps)
    return start + server_lr * steps * step * rounds


def decay_constant(
    start: float, u0: float, gamma: float, *, step: float, steps: int, rounds: int, server_lr: float = 1.0
) -> float:
    """C of Theorem 2: the largest u_t max(||x_t||, ||x_t||^2) that `norm_bound` allows, with u_t = u_0 gamma^t.

    An exponential beats a square, so C does not grow with the number of rounds from some round on.
    """
    require(is_number(u0) and u0 >= 0, "u0", "a number >= 0", u0)
    require(is_number(gamma) and 0 <= gamma < 1, "gamma", "a number in [0, 1)", gamma)
    sizes = (norm_bound(start, t, step=step, steps=steps, server_lr=server_lr) for t in range(rounds + 1))
    return max(u0 * gamma**t * max(size, size**2) for t, size in enumerate(sizes))


@dataclass(frozen=True)
class LimitTerms:
    """The two terms of Theorem 2 that do not vanish with T, without the factors that the paper hides in its O()."""

    weight_decay: float
    """L lambda_g^2 tau^2 C^2."""
    drift: float
    """L lambda_g^2 tau l^2 (tau sigma^2 + L^2 tau^2 A^3 + sigma_g^2)."""


def limit_terms(
    *,
    smoothness: float,
    steps: int,
    largest_lr: float,
    step: float,
    decay_constant: float,
    noise: float = 0.0,
    heterogeneity: float = 0.0,
    server_lr: float = 1.0,
) -> LimitTerms:
    """What min_t E||grad F(x_t)||^2 of FedNAR's Theorem 2 tends to, up to the paper's unnamed constants.

    `noise` is sigma^2, `heterogeneity` sigma_g^2, `largest_lr` l = max_t l_t, `step` A of Condition 1 and
    `decay_constant` C. The terms compare settings; they are no bound in numbers. The proof is in an appendix that was
    not at hand.

    >>> limit_terms(smoothness=1.0, steps=2, largest_lr=0.1, step=0.0, decay_constant=0.5).weight_decay
    1.0
    """
    for name, value in (("smoothness", smoothness), ("largest_lr", largest_lr), ("step", step)):
        require(is_number(value) and value >= 0, name, "a number >= 0", value)
    common = smoothness * server_lr**2
    inside = steps * noise + smoothness**2 * steps**2 * step**3 + heterogeneity
    return LimitTerms(common * steps**2 * decay_constant**2, common * steps * largest_lr**2 * inside)
