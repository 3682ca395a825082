"""FedNAR: gradient and weight decay are clipped together. A plug-in for any algorithm."""

from __future__ import annotations

from fedtempo.algorithms.algorithm import Algorithm, named
from fedtempo.errors import is_number, require
from fedtempo.schedules import Rate, Schedule
from fedtempo.transforms import add_weight_decay, chain, clip_by_global_norm


@named
def fednar(algorithm: Algorithm, *, weight_decay: Rate, max_norm: Rate, eps: float = 0.0) -> Algorithm:
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
    _check(weight_decay, max_norm)
    return algorithm.with_direction(
        lambda direction: chain(add_weight_decay(weight_decay), clip_by_global_norm(max_norm, eps), direction)
    )


@named
def clip_then_decay(algorithm: Algorithm, *, weight_decay: Rate, max_norm: Rate, eps: float = 0.0) -> Algorithm:
    """The baseline FedNAR is compared with: the same two pieces in the other order (eq. 5).

    x <- x - l_t (s g + weight_decay x) with s = min(1, max_norm / ||g||): the decay is not clipped.
    """
    _check(weight_decay, max_norm)
    return algorithm.with_direction(
        lambda direction: chain(clip_by_global_norm(max_norm, eps), add_weight_decay(weight_decay), direction)
    )


def _check(weight_decay: Rate, max_norm: Rate) -> None:
    decay_is_right = isinstance(weight_decay, Schedule) or (is_number(weight_decay) and weight_decay >= 0)
    require(decay_is_right, "weight_decay", "a number >= 0 or a schedule", weight_decay)
    norm_is_right = isinstance(max_norm, Schedule) or (is_number(max_norm) and max_norm > 0)
    require(norm_is_right, "max_norm", "a number > 0 or a schedule", max_norm)
