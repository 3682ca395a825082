"""FedNAR: gradient and weight decay are clipped together. A plug-in for any algorithm."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import TrafficSettings, named
from fedtempo.client.clipping import Order, Scope, clip_by_norm
from fedtempo.client.optimizers import NORMALISED
from fedtempo.client.transforms import Transform, add_weight_decay, chain
from fedtempo.errors import ConfigError, require
from fedtempo.schedules import Rate, checked_rate


@named
def fednar(
    algorithm: Algorithm,
    *,
    weight_decay: Rate,
    max_norm: Rate,
    eps: float = 0.0,
    scope: Scope = "all",
    order: Order = 2,
    **traffic: Unpack[TrafficSettings],
) -> Algorithm:
    """Every local step of `algorithm` becomes x <- x - l_t s d, d = g + weight_decay x, s = min(1, max_norm / ||d||).

    FedNAR, eqs. 3 and 4. g is the backbone's gradient with its proximal and control terms, the norm is one norm over
    all parameters. `weight_decay` is torch's coefficient u_t / l_t: with l_t = l_0 gamma^t a constant weight_decay
    anneals u_t = u_0 gamma^t with u_0 = weight_decay l_0. The paper counts rounds from 1, we from 0: start at
    l_0 gamma to follow it. `eps=1e-6` follows the authors' `clip_grad_norm_`. `scope="layer"` or `"tensor"` clips every
    module's or tensor's part of d by a norm of its own; `order` is 1, 2 or "max". Rounds report how many steps were
    clipped and the mean norm of those (the paper's Figure 5); with several norms, how many were clipped. Around an
    optimizer that decays weights itself, such as AdamW, one of the two decays must be 0.

    >>> from fedtempo.algorithms import scaffold
    >>> fednar(scaffold(lr=0.01, steps=20), weight_decay=0.05, max_norm=10.0).name
    'fednar'
    """
    decay, clip = decay_and_clip(weight_decay, max_norm, eps, scope, order)
    free = decayed_once(algorithm.leaving(NORMALISED, "fednar"), weight_decay, "fednar")
    return free.with_direction(lambda direction: chain(decay, clip, direction))


def decay_and_clip(
    weight_decay: Rate, max_norm: Rate, eps: float, scope: Scope, order: Order
) -> tuple[Transform, Transform]:
    """FedNAR's two pieces, weight decay and clipping, from checked settings."""
    require(eps >= 0, "eps", "a number >= 0", eps)
    limit = checked_rate(max_norm, "max_norm", positive=True)
    return add_weight_decay(checked_rate(weight_decay, "weight_decay")), clip_by_norm(limit, eps, scope, order)


def decayed_once(algorithm: Algorithm, weight_decay: Rate | None, who: str) -> Algorithm:
    """The algorithm itself; an error where an optimizer would decay its weights a second time. None: by a function."""
    phases = [p for phase in algorithm.phases for p in phase.together]
    own = {p.optimizer.name for p in phases if "weight_decay" in dict(p.optimizer.transform.schedules)}
    if own and weight_decay != 0:
        rule = "must be around an optimizer that does not decay weights itself, or they decay twice"
        which = "it" if weight_decay is None else "one of the two"
        raise ConfigError(f"{who} {rule}. Got {', '.join(sorted(own))}: give {which} weight_decay=0.")
    return algorithm
