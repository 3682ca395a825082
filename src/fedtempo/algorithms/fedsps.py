"""FedSPS and FedDecSPS: Polyak's step size on every client. Plug-ins for any algorithm."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import named
from fedtempo.algorithms.rate_rules import ruled
from fedtempo.client.rules import Probe, RateRule, State, zero_of
from fedtempo.errors import require
from fedtempo.params import Params, Scalar, is_plain, squared_norm
from fedtempo.schedules import Position


@named
def fedsps(
    algorithm: Algorithm,
    *,
    c: float = 0.5,
    lower: float = 0.0,
    bounded: bool = True,
    eps: float = 0.0,
    with_proximal: bool = True,
) -> Algorithm:
    """eta_k = min((f(y_k) - lower) / (c |g_k|^2), gamma_b), loss and gradient of one batch (Mukherjee et al., 2024).

    gamma_b is the algorithm's `lr`, `lower` a lower bound of the loss. Loss and gradient both contain a proximal term,
    or with `with_proximal=False` neither; neither contains a control variate. A zero gradient gives gamma_b, a loss
    below `lower` gives 0. The rule in Delta-SGD's code has no upper bound (`bounded=False`) and adds `eps=1e-8` to the
    denominator.
    """
    require(c > 0, "c", "a number > 0", c)
    require(eps >= 0, "eps", "a number >= 0", eps)

    def update(probe: Probe, state: State, now: Position) -> tuple[Scalar, State]:
        probe = probe if with_proximal else _of_data(probe)
        square = squared_norm(probe.gradient)
        if is_plain(square) and isinstance(probe.base, (int, float)):
            # Numbers of one client are faster in Python than as tensors.
            return _plain_rate(float(probe.loss) - lower, c * float(square), eps, probe.base, bounded), state
        ratio, steep, above = _polyak(probe, square, lower, c, eps)
        bound = zero_of(probe.params) + probe.base
        eta = torch.where(steep, torch.minimum(ratio, bound) if bounded else ratio, bound)
        return torch.where(above, eta, 0.0), state

    rule = RateRule(lambda params: {}, update, needs_data=not with_proximal)
    return ruled(algorithm, rule, "fedsps")


@named
def feddecsps(
    algorithm: Algorithm,
    *,
    c: float = 0.5,
    lower: float = 0.0,
    counts: Literal["run", "own", "round"] = "run",
    with_proximal: bool = True,
) -> Algorithm:
    """eta_n = r_n / (c sqrt(n + 1)), r_n = min(r_{n-1}, (f(y_n) - lower) / |g_n|^2), r_{-1} = c gamma_b.

    Mukherjee et al. (2024), where n counts local steps since the start of training. A client keeps its r.
    `counts="run"` counts as if the client had taken part in every round, `"own"` the steps it took; with `"round"` n
    and r start afresh in every round. gamma_b is the algorithm's `lr`. A loss below `lower` gives 0 and leaves r as it
    is. `with_proximal` as for `fedsps`.
    """
    require(c > 0, "c", "a number > 0", c)

    def init(params: Params) -> State:
        # -1 stands for "not set": what a client keeps must be finite.
        return {"smallest": zero_of(params) - 1.0, "count": zero_of(params)}

    def update(probe: Probe, state: State, now: Position) -> tuple[Scalar, State]:
        probe = probe if with_proximal else _of_data(probe)
        square = squared_norm(probe.gradient)
        if is_plain(square) and isinstance(probe.base, (int, float)):
            gap, last = float(probe.loss) - lower, float(state["smallest"])
            least = c * probe.base if last < 0 else last
            least = min(least, gap / float(square)) if float(square) > 0 and gap >= 0 else least
            count = state["count"] if counts == "own" else now.value(lambda here: float(here.earlier + here.step))
            eta = least / (c * (float(count) + 1.0) ** 0.5) if gap >= 0 else 0.0
            return eta, {"smallest": state["smallest"].new_tensor(least), "count": state["count"] + 1.0}
        ratio, steep, above = _polyak(probe, square, lower, 1.0, 0.0)
        before = torch.where(state["smallest"] < 0, c * probe.base, state["smallest"])
        smallest = torch.where(steep & above, torch.minimum(before, ratio), before)
        taken = state["count"] if counts == "own" else now.value(lambda here: float(here.earlier + here.step))
        eta = smallest / (c * (taken + 1.0) ** 0.5)
        return torch.where(above, eta, 0.0), {"smallest": smallest, "count": state["count"] + 1.0}

    rule = RateRule(init, update, keeps_state=counts != "round", needs_data=not with_proximal)
    return ruled(algorithm, rule, "feddecsps", counts_earlier=counts == "run")


def _of_data(probe: Probe) -> Probe:
    assert probe.of_data is not None  # `ruled` refuses other objectives
    gradient, loss = probe.of_data
    return probe._replace(gradient=gradient, loss=loss)


def _plain_rate(gap: float, below: float, eps: float, bound: float, bounded: bool) -> float:
    if gap < 0 or below == 0:
        return bound if gap >= 0 else 0.0
    return min(gap / (below + eps), bound) if bounded else gap / (below + eps)


def _polyak(probe: Probe, square: Tensor, lower: float, c: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(f - lower) / (c |g|^2 + eps), whether the gradient is not zero, and whether the loss is at least `lower`."""
    gap, square = probe.loss.to(torch.float64) - lower, square.to(torch.float64)
    steep = square > 0
    return gap / (c * torch.where(steep, square, 1.0) + eps), steep, gap >= 0
