"""The personalization ratio R: what local steps improve more, the model before or the model after fine-tuning.

FedDecay's Taylor argument writes the expected displacement of a client as `c1 AvgGrad - c2 AvgGradInner`; R = c2 / c1.
A small R favours the model before fine-tuning, a large R the model after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedtempo.errors import is_count, is_number, require
from fedtempo.schedules import Now, Rate, as_schedule, at_step


@dataclass(frozen=True)
class Coefficients:
    """The two weights in `E[method gradient] = avg_grad AvgGrad - avg_grad_inner AvgGradInner + O(eta^2)`."""

    avg_grad: float
    avg_grad_inner: float

    @property
    def ratio(self) -> float:
        """R: the weight of AvgGradInner over that of AvgGrad."""
        return self.avg_grad_inner / self.avg_grad


def gradient_coefficients(factors: Sequence[float], lr: float, sent: Sequence[float] | None = None) -> Coefficients:
    """The weights of AvgGrad and AvgGradInner in what a client sends, for any within-round sequence.

    With step j moving by `-lr b_j g_j`, B(k) = sum_{h<k} b_h, and the sent sum a_j g_j:

        avg_grad = sum_j a_j,    avg_grad_inner = lr sum_j a_j B(j)

    FedDecay, appendix A.1 (A in the short version), where a = b. FOMAML walks with b = 1 and sends only
    the last gradient: `sent = (0, ..., 0, 1)`. The paper prints B(k) with beta_{j-1} for beta_j, and its
    equation 10 (short version: 6) lacks a factor lr beta; both are right here.

    >>> gradient_coefficients([1, 0.5, 0.25], lr=0.5)
    Coefficients(avg_grad=1.75, avg_grad_inner=0.4375)
    """
    walked = [float(b) for b in factors]
    weights = walked if sent is None else [float(a) for a in sent]
    require(bool(walked) and all(map(is_number, walked)), "factors", "one or more finite numbers", list(factors))
    require(len(weights) == len(walked) and all(map(is_number, weights)), "sent", "as long as factors", weights)
    require(sum(weights) > 0, "factors" if sent is None else "sent", "of positive sum", weights)
    require(is_number(lr) and lr >= 0, "lr", "a number >= 0", lr)
    # `before` is B(j), the sum of the factors of all steps before step j.
    before, inner = 0.0, 0.0
    for factor, weight in zip(walked, weights, strict=True):
        inner += weight * before
        before += factor
    return Coefficients(math.fsum(weights), lr * inner)


def personalization_ratio(factors: Sequence[float], lr: float) -> float:
    """R of any within-round sequence b_0..b_{K-1}: `lr sum_j b_j B(j) / B(K)` with B(k) = sum_{h<k} b_h.

    FedDecay, appendix A.1. Rescaling b and lr against each other changes nothing.

    >>> personalization_ratio([1, 1, 1, 1, 1], lr=0.1)  # FedAvg: (K - 1) lr / 2
    0.2
    """
    return gradient_coefficients(factors, lr).ratio


def within_round(rate: Rate, steps: int, round: int = 0, batches_per_epoch: int | None = None) -> list[float]:
    """The learning rates of one round's steps; one epoch per round unless `batches_per_epoch` says otherwise.

    >>> from fedtempo.schedules import per_step
    >>> within_round(per_step(0.5, 0.5), steps=3)
    [0.5, 0.25, 0.125]
    """
    require(is_count(steps), "steps", "an int >= 1", steps)
    schedule = as_schedule(rate)
    per_epoch = steps if batches_per_epoch is None else batches_per_epoch
    now = Now(round=round)
    return [schedule.at(at_step(now, step, steps, per_epoch)) for step in range(steps)]


def schedule_ratio(lr: Rate, steps: int, round: int = 0, batches_per_epoch: int | None = None) -> float:
    """R of a client learning rate, as any schedule of the library, in one round.

    The schedule's values are the products lr b_j, so the general sum is used with lr = 1.

    >>> from fedtempo.schedules import per_round, per_step
    >>> round(schedule_ratio(per_round(0.1, 0.5) * per_step(1.0, 0.5), steps=3, round=1), 6)
    0.025
    """
    return personalization_ratio(within_round(lr, steps, round, batches_per_epoch), lr=1.0)


def fedsgd_ratio() -> float:
    """R of FedSGD, which takes one step: 0 (FedDecay, Table 1)."""
    return 0.0


def fedavg_ratio(steps: float, lr: float) -> float:
    """R of FedAvg and Reptile: `(K - 1) lr / 2` (FedDecay, Table 1); `steps=math.inf` gives the limit.

    >>> fedavg_ratio(3, lr=0.1), fedavg_ratio(math.inf, lr=0.1)
    (0.1, inf)
    """
    _check(steps, lr)
    return (steps - 1) * lr / 2 if lr else 0.0


def fomaml_ratio(steps: float, lr: float) -> float:
    """R of FOMAML: `(K - 1) lr` (FedDecay, Table 1); `steps=math.inf` gives the limit.

    >>> fomaml_ratio(3, lr=0.1)
    0.2
    """
    return 2 * fedavg_ratio(steps, lr)


def feddecay_ratio(beta: float, steps: float, lr: float) -> float:
    """R of exponential FedDecay: `lr (beta - beta^K) / (1 - beta^2)` (FedDecay, Table 1).

    beta=0 is FedSGD, beta=1 FedAvg, which the formula only reaches as a limit; `steps=math.inf` gives
    `lr beta / (1 - beta^2)`.

    >>> feddecay_ratio(0.5, 3, lr=0.5), feddecay_ratio(0.5, math.inf, lr=0.75)
    (0.25, 0.5)
    """
    _check(steps, lr)
    require(is_number(beta) and 0 <= beta <= 1, "beta", "a number in [0, 1]", beta)
    if beta == 1:
        return fedavg_ratio(steps, lr)
    if beta == 0 or steps == 1:
        return 0.0
    # expm1 and log1p keep the difference beta - beta^K exact where beta is next to 1.
    missing = 1.0 if steps == math.inf else -math.expm1((steps - 1) * math.log(beta))
    return lr * beta * missing / ((1 - beta) * (1 + beta))


def feddecay_coefficients(beta: float, steps: int, lr: float) -> Coefficients:
    """FedDecay's equation 10 (short version: 6), corrected: both weights in closed form for b_j = beta^j.

        avg_grad = (1 - beta^K) / (1 - beta)
        avg_grad_inner = lr beta (1 - beta^(K-1)) (1 - beta^K) / ((1 + beta) (1 - beta)^2)

    The printed equation forgets the factor `lr beta`; the papers' appendix and Table 1 have it.

    >>> feddecay_coefficients(0.5, 3, lr=0.5)
    Coefficients(avg_grad=1.75, avg_grad_inner=0.4375)
    """
    _check(steps, lr)
    require(is_number(beta) and 0 <= beta <= 1, "beta", "a number in [0, 1]", beta)
    total = float(steps) if beta == 1 else (1 - beta**steps) / (1 - beta)
    return Coefficients(total, total * feddecay_ratio(beta, steps, lr))


def beta_for_ratio(ratio: float, steps: int, lr: float) -> float:
    """The beta in [0, 1] whose FedDecay ratio is this one: the inverse of `feddecay_ratio`.

    R grows with beta from 0 (FedSGD) to (K - 1) lr / 2 (FedAvg), so bisection finds it.

    >>> round(beta_for_ratio(0.05, 3, lr=0.1), 9)
    0.5
    """
    _check(steps, lr)
    require(is_number(lr) and lr > 0 and steps > 1, "lr and steps", "lr > 0 and steps > 1", (lr, steps))
    most = fedavg_ratio(steps, lr)
    require(is_number(ratio) and 0 <= ratio <= most, "ratio", f"a number in [0, {most:g}] (FedAvg's ratio)", ratio)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if feddecay_ratio(middle, steps, lr) < ratio:
            low = middle
        else:
            high = middle
    return high


def _check(steps: float, lr: float) -> None:
    require(is_count(steps) or steps == math.inf, "steps", "an int >= 1 or math.inf", steps)
    require(is_number(lr) and lr >= 0, "lr", "a number >= 0", lr)
