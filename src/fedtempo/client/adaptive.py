"""Rates and weight decays that are functions of the gradient and the weights: FedNAR's Algorithm 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedtempo.client.kernels import decayed_step
from fedtempo.client.transforms import Transform, stateless
from fedtempo.client.transforms.transform import State
from fedtempo.params import Params, Scalar, add, is_plain, norm
from fedtempo.schedules import Position, Rate, as_schedule

Factor = Scalar | Mapping[str, Scalar]
StepFunction = Callable[[Params, Params, Position], Factor]
"""(gradient, weights, position) -> a number, or a number for each tensor by its name."""


def scale_gradient_and_decay(rate: StepFunction, decay: StepFunction) -> Transform:
    """`rate(g, x) g + decay(g, x) x`."""

    def direction(gradient: Params, params: Params, now: Position) -> Params:
        by, off = rate(gradient, params, now), decay(gradient, params, now)
        return {n: _of(by, n) * g + _of(off, n) * params[n] for n, g in gradient.items()}

    def one_pass(gradient: Params, before: float, state: State, params: Params, now: Position, lr: float) -> State:
        if before:
            return None
        by, off = (_number(function(gradient, params, now)) for function in (rate, decay))
        if not by or off is None:  # a factor for each tensor, or none for the gradient
            return None
        decayed_step(params, gradient, lr * by, off / by)
        return state

    return stateless(direction)._replace(one_pass=one_pass)


def _number(factor: Factor) -> float | None:
    """A factor of all tensors as Python reads it; None where it is something else."""
    if isinstance(factor, Tensor):
        return factor.item() if factor.dim() == 0 and is_plain(factor) else None
    return float(factor) if isinstance(factor, (int, float)) else None


def _of(factor: Factor, name: str) -> Scalar:
    return factor[name] if isinstance(factor, Mapping) else factor


def _share(length: Tensor, limit: Scalar) -> Tensor:
    """min(1, limit / length), and 1 for a length of 0."""
    return torch.clamp(limit / length.clamp(min=torch.finfo(length.dtype).tiny), max=1.0)


def clipped_together(weight_decay: Rate, max_norm: Rate) -> tuple[StepFunction, StepFunction]:
    """Rate and decay of FedNAR's equations 3 and 4, over the learning rate: s and s u, s = min(1, A / ||g + u x||)."""
    u, limit = as_schedule(weight_decay), as_schedule(max_norm)

    def rate(gradient: Params, params: Params, now: Position) -> Scalar:
        return _share(norm(add(gradient, params, u(now))), limit(now))

    return rate, lambda gradient, params, now: u(now) * rate(gradient, params, now)


def gradient_clipped(weight_decay: Rate, max_norm: Rate) -> tuple[StepFunction, StepFunction]:
    """Rate and decay of equation 5: min(1, A / ||g||) and u, the decay that is not clipped."""
    u, limit = as_schedule(weight_decay), as_schedule(max_norm)
    return lambda gradient, params, now: _share(norm(gradient), limit(now)), lambda gradient, params, now: u(now)


def bounded_decay(weight_decay: Rate, weight_norm: Rate) -> StepFunction:
    """mu min(1, c / ||x||): a decay that moves the weights by at most mu c (section 4.2)."""
    u, limit = as_schedule(weight_decay), as_schedule(weight_norm)
    return lambda gradient, params, now: u(now) * _share(norm(params), limit(now))
