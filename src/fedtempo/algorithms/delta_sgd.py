"""Delta-SGD: the client's rate follows the curvature that its own steps meet. A plug-in for any algorithm."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import named
from fedtempo.algorithms.parts.rate_rules import ruled
from fedtempo.client.rules import Probe, RateRule, State, zero_of
from fedtempo.errors import is_number, require
from fedtempo.params import Params, Scalar, norm, subtract
from fedtempo.schedules import Position, step_number


@named
def delta_sgd(
    algorithm: Algorithm,
    *,
    gamma: float | None = 2.0,
    delta: float = 0.1,
    theta: float = 1.0,
    most: float | None = None,
    first_grows: bool = False,
    eps: float = 0.0,
) -> Algorithm:
    """eta_k = min(gamma |y_k - y_{k-1}| / (2 |g_k - g'_k|), sqrt(1 + delta eta_{k-1} / eta_{k-2}) eta_{k-1}).

    Kim et al. (2024), Algorithm 1; as printed it has delta=1. eta_0 is the algorithm's `lr` and the first ratio is
    `theta`, both anew in every round. g'_k is the gradient at y_{k-1} on the batch of step k, so a step costs two
    gradients from the second one on. Both have a proximal term, and neither a correction, FedDyn's pull included. Where
    nothing moved or the gradient did not change, the rate grows; `most` bounds it. `gamma=None` leaves the curvature
    out. The authors' code grows in the first step already (`first_grows=True`) and adds `eps=1e-8` to the minimum.

    >>> from fedtempo.algorithms import fedavg
    >>> delta_sgd(fedavg(lr=0.2, steps=10)).name
    'delta_sgd'
    """
    require(gamma is None or (is_number(gamma) and gamma > 0), "gamma", "a number > 0 or None", gamma)
    for name, value in (("delta", delta), ("theta", theta), ("eps", eps)):
        require(value >= 0, name, "a number >= 0", value)
    require(most is None or most > 0, "most", "a number > 0 or None", most)

    def init(params: Params) -> State:
        zero = zero_of(params)
        return {"previous": dict(params), "eta": zero, "theta": zero + theta}

    def update(probe: Probe, state: State, now: Position) -> tuple[Scalar, State]:
        growth = torch.sqrt(1 + delta * state["theta"])
        if step_number(now) == 0:
            eta, theta_now = state["eta"] + probe.base, state["theta"]
            eta, theta_now = (growth * eta, growth) if first_grows else (eta, theta_now)
            eta = _bounded(eta, most)
        else:
            moved = norm(subtract(probe.params, state["previous"])).to(torch.float64)
            turned = norm(subtract(probe.gradient, probe.gradient_at(state["previous"]))).to(torch.float64)
            known = (moved > 0) & (turned > 0)
            grown = growth * state["eta"]
            bound = grown if gamma is None else gamma * moved / (2 * torch.where(known, turned, 1.0))
            eta = torch.where(known, torch.minimum(bound, grown) + eps, grown)
            eta = _bounded(eta, most)
            theta_now = torch.where(state["eta"] > 0, eta / torch.where(state["eta"] > 0, state["eta"], 1.0), 0.0)
        return eta, {"previous": dict(probe.params), "eta": eta, "theta": theta_now}

    return ruled(algorithm, RateRule(init, update, probes_other_points=True), "delta_sgd")


def _bounded(eta: Tensor, most: float | None) -> Tensor:
    return eta if most is None else eta.clamp(max=most)
