"""Clipping by norms other than one Euclidean norm over all parameters, and weight decay that is bounded by itself."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from fedtempo.client.transforms import Transform, clip_by_global_norm, identity, stateless
from fedtempo.params import Params, Scalar, add, norm
from fedtempo.schedules import Position, Rate, Schedule, as_schedule, checked_rate

Scope = Literal["all", "layer", "tensor"]
"""What one norm is taken over: all parameters, the parameters of one module, or one tensor."""
Order = Literal[1, 2, "max"]
"""Which norm: the sum of absolute values, the Euclidean norm, or the largest absolute value."""


def clip_gradient(max_norm: Rate | None) -> Transform:
    """An algorithm's own `max_norm`: torch's `clip_grad_norm_`, or nothing where it is None."""
    if max_norm is None:
        return identity
    return clip_by_global_norm(checked_rate(max_norm, "max_norm", positive=True), 1e-6)


def clip_by_norm(limit: Rate, eps: float = 0.0, scope: Scope = "all", order: Order = 2) -> Transform:
    """`min(1, limit / (norm + eps))` times each part of the gradient, with a norm for each part.

    Counts the parts that it shortened, as `clipped_steps`, and their norms; with one part these are steps.
    """
    if scope == "all" and order == 2:
        return clip_by_global_norm(limit, eps)
    bound = as_schedule(limit)

    def init(params: Params) -> dict[str, Tensor]:
        zero = torch.zeros((), dtype=torch.float64, device=next(iter(params.values())).device)
        return {"clipped_steps": zero, "clipped_norm": zero}

    def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
        most, clipped = bound(now), dict[str, Tensor]()
        steps, norms = state["clipped_steps"], state["clipped_norm"]
        for part in _parts(gradient, scope):
            length = length_of_order(part, order)
            over = (length > most).to(torch.float64)
            factor = torch.clamp(most / (length + eps), max=1.0).to(length.dtype)
            clipped.update({n: g * factor for n, g in part.items()})
            steps, norms = steps + over, norms + over * length.to(torch.float64)
        return {n: clipped[n] for n in gradient}, {"clipped_steps": steps, "clipped_norm": norms}

    return Transform(init, update, lambda state: state, (("max_norm", bound),))


def length_of_order(tensors: Params, order: Order) -> Tensor:
    """The norm of all these tensors as one vector.

    >>> [float(length_of_order({"w": torch.tensor([3.0, -4.0])}, order)) for order in (1, 2, "max")]
    [7.0, 5.0, 4.0]
    """
    if order == 2:
        return norm(tensors)
    # The largest of no numbers is no number, but the length of nothing is 0.
    sizes = [t.abs().sum() if order == 1 or not t.numel() else t.abs().max() for t in tensors.values()]
    together = torch.stack(sizes)
    return together.sum() if order == 1 else together.max()


def _parts(gradient: Params, scope: Scope) -> list[Params]:
    if scope == "all":
        return [gradient]
    if scope == "tensor":
        return [{n: g} for n, g in gradient.items()]
    layers: dict[str, Params] = {}
    for name, tensor in gradient.items():
        layers.setdefault(name.rpartition(".")[0], {})[name] = tensor
    return list(layers.values())


def decay_within(rate: Schedule, limit: Schedule) -> Transform:
    """`gradient + rate min(1, limit / ||x||) x`: weight decay that moves the weights by at most `rate * limit`."""

    def decayed(gradient: Params, params: Params, now: Position) -> Params:
        length = norm(params)
        # At x = 0 there is nothing to decay; the smallest number keeps 0 / 0 out.
        floor = torch.finfo(length.dtype).tiny
        factor: Scalar = rate(now) * torch.clamp(limit(now) / length.clamp(min=floor), max=1.0)
        return add(gradient, params, factor)

    return stateless(decayed, weight_decay=rate, weight_norm=limit)
