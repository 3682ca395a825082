"""FedSPS: Polyak's step size on every client. A plug-in for any algorithm."""

from __future__ import annotations

import torch

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import named
from fedtempo.algorithms.parts.polyak import of_data_alone, polyak_ratio
from fedtempo.algorithms.parts.rate_rules import ruled
from fedtempo.client.rules import Probe, RateRule, State, zero_of
from fedtempo.errors import require
from fedtempo.params import Scalar, plain_squared_norm
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
        probe = probe if with_proximal else of_data_alone(probe)
        square = plain_squared_norm(probe.gradient)
        if square is not None and isinstance(probe.base, (int, float)):
            # Numbers of one client are faster in Python than as tensors.
            return _plain_rate(probe.loss.item() - lower, c * square, eps, probe.base, bounded), state
        ratio, steep, above = polyak_ratio(probe, lower, c, eps)
        bound = zero_of(probe.params) + probe.base
        eta = torch.where(steep, torch.minimum(ratio, bound) if bounded else ratio, bound)
        return torch.where(above, eta, 0.0), state

    rule = RateRule(lambda params: {}, update, needs_data=not with_proximal)
    return ruled(algorithm, rule, "fedsps")


def _plain_rate(gap: float, below: float, eps: float, bound: float, bounded: bool) -> float:
    if gap < 0 or below == 0:
        return bound if gap >= 0 else 0.0
    return min(gap / (below + eps), bound) if bounded else gap / (below + eps)
