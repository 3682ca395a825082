"""Clip, then decay: the baseline that FedNAR is compared with. A plug-in for any algorithm."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.fednar import decay_and_clip, decayed_once
from fedtempo.algorithms.named import TrafficSettings, named
from fedtempo.client.clipping import Order, Scope, decay_within
from fedtempo.client.optimizers import NORMALISED
from fedtempo.client.transforms import chain
from fedtempo.schedules import Rate, checked_rate


@named
def clip_then_decay(
    algorithm: Algorithm,
    *,
    weight_decay: Rate,
    max_norm: Rate,
    weight_norm: Rate | None = None,
    eps: float = 0.0,
    scope: Scope = "all",
    order: Order = 2,
    **traffic: Unpack[TrafficSettings],
) -> Algorithm:
    """The baseline FedNAR is compared with: the same two pieces in the other order (eq. 5).

    x <- x - l_t (s g + weight_decay x) with s = min(1, max_norm / ||g||): the decay is not clipped. With `weight_norm`
    = c the decay is mu min(1, c / ||x||), the paper's other way to bound each step (section 4.2).
    """
    decay, clip = decay_and_clip(weight_decay, max_norm, eps, scope, order)
    if weight_norm is not None:
        limit = checked_rate(weight_norm, "weight_norm", positive=True)
        decay = decay_within(checked_rate(weight_decay, "weight_decay"), limit)
    free = decayed_once(algorithm.leaving(NORMALISED, "clip_then_decay"), weight_decay, "clip_then_decay")
    return free.with_direction(lambda direction: chain(clip, decay, direction))
