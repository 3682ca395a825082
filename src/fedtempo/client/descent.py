"""How a local step moves the weights: params - rate * direction, with the same bits in place and not."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtempo.client.objectives import Pull, Pulled, View
from fedtempo.client.phase import Phase
from fedtempo.params import Params, Scalar, partition
from fedtempo.schedules import Position


def moved(params: Params, direction: Params, rate: Scalar, in_place: bool) -> Params:
    """params - rate * direction for the tensors that have a direction."""
    # Under `vmap` clients of different sizes have different rates, and the rate is a tensor: `alpha` takes none.
    if not isinstance(rate, (int, float)):
        # A rate is a number of 64 bits. Times another single number it would make a weight of one number 64 bits too.
        return {**params, **{n: params[n] - (rate * d).to(d.dtype) for n, d in direction.items()}}
    if not in_place:
        return {**params, **{n: torch.sub(params[n], d, alpha=rate) for n, d in direction.items()}}
    if direction:
        torch._foreach_sub_([params[n] for n in direction], list(direction.values()), alpha=rate)
    return params


def moved_apart(
    phase: Phase, params: Params, gradient: Params, rate: Scalar, view: View, now: Position, in_place: bool
) -> Params:
    """params - rate (gradient + mu (params - centre) + correction), or with the correction's share, term by term.

    A pass over the weights for each term takes half the time of making the direction first.
    """
    correction, share = phase.correction, 1.0 if phase.share is None else phase.share(now)
    if isinstance(phase.objective, Pulled):
        params = _approach(params, phase.objective.pull, rate, view, now, in_place)
    if isinstance(correction, Pull):
        params = _approach(params, correction, rate, view, now, in_place)
    elif correction is not None:
        along = correction(view)
        params = moved(params, along, rate if phase.share is None else rate * (1 - share), in_place)
        if phase.share is not None and len(along) < len(gradient):
            # A personal head has no correction, so that its gradient counts whole.
            gradient, whole = partition(gradient, along)
            params = moved(params, whole, rate, in_place)
    return moved(params, gradient, rate * share, in_place)


def _approach(params: Params, pull: Pull, rate: Scalar, view: View, now: Position, in_place: bool) -> Params:
    """params - rate mu (params - centre), for the tensors that have a centre."""
    centre, weight = pull.centre(view), rate * pull.strength(now)
    names = [n for n in params if n in centre]
    if not in_place or isinstance(weight, Tensor):
        return {**params, **{n: torch.lerp(params[n], centre[n], like(weight, params[n])) for n in names}}
    torch._foreach_lerp_([params[n] for n in names], [centre[n] for n in names], weight)
    return params


def like(value: Scalar, tensor: Tensor) -> Scalar:
    """A number as `lerp` takes it: a float, or a tensor of the same type."""
    return value.to(tensor.dtype) if isinstance(value, Tensor) else value
