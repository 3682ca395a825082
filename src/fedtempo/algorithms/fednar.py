"""FedNAR: gradient and weight decay are clipped together. A plug-in for any algorithm."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import NORMALISED, Algorithm, TrafficSettings, named
from fedtempo.client.transforms import Transform, add_weight_decay, chain, clip_by_global_norm
from fedtempo.errors import require
from fedtempo.schedules import Rate, checked_rate


@named
def fednar(
    algorithm: Algorithm, *, weight_decay: Rate, max_norm: Rate, eps: float = 0.0, **traffic: Unpack[TrafficSettings]
) -> Algorithm:
    """Every local step of `algorithm` becomes x <- x - l_t s d, d = g + weight_decay x, s = min(1, max_norm / ||d||).

    FedNAR, eqs. 3 and 4. g is the backbone's gradient with its proximal and control terms, the norm is one norm over
    all parameters. `weight_decay` is torch's coefficient u_t / l_t: with l_t = l_0 gamma^t a constant weight_decay
    anneals u_t = u_0 gamma^t with u_0 = weight_decay l_0. The paper counts rounds from 1, we from 0: start at
    l_0 gamma to follow it. `eps=1e-6` follows the authors' `clip_grad_norm_`. Rounds report how many steps were
    clipped and the mean norm of those (the paper's Figure 5).

    >>> from fedtempo.algorithms import scaffold
    >>> fednar(scaffold(lr=0.01, steps=20), weight_decay=0.05, max_norm=10.0).name
    'fednar'
    """
    decay, clip = _pieces(weight_decay, max_norm, eps)
    free = algorithm.leaving(NORMALISED, "fednar")
    return free.with_direction(lambda direction: chain(decay, clip, direction))


@named
def clip_then_decay(
    algorithm: Algorithm, *, weight_decay: Rate, max_norm: Rate, eps: float = 0.0, **traffic: Unpack[TrafficSettings]
) -> Algorithm:
    """The baseline FedNAR is compared with: the same two pieces in the other order (eq. 5).

    x <- x - l_t (s g + weight_decay x) with s = min(1, max_norm / ||g||): the decay is not clipped.
    """
    decay, clip = _pieces(weight_decay, max_norm, eps)
    free = algorithm.leaving(NORMALISED, "clip_then_decay")
    return free.with_direction(lambda direction: chain(clip, decay, direction))


def _pieces(weight_decay: Rate, max_norm: Rate, eps: float) -> tuple[Transform, Transform]:
    require(eps >= 0, "eps", "a number >= 0", eps)
    limit = checked_rate(max_norm, "max_norm", positive=True)
    return add_weight_decay(checked_rate(weight_decay, "weight_decay")), clip_by_global_norm(limit, eps)
