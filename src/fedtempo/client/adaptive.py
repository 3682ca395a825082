"""Rates and weight decays that are functions of the gradient and the weights: FedNAR's Algorithm 2."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtempo.client.kernels import decayed_step
from fedtempo.client.transforms import Transform, stateless
from fedtempo.client.transforms.transform import State
from fedtempo.errors import ConfigError, first_line, is_number, shown
from fedtempo.params import Params, Scalar, add, is_plain, norm, plain_norm
from fedtempo.schedules import Position, Rate, Schedule, as_schedule
from fedtempo.support.user_errors import place_of

Factor = Scalar | Mapping[str, Scalar]
StepFunction = Callable[[Params, Params, Position], Factor]
"""(gradient, weights, position) -> a number, or a number for each tensor by its name."""


@dataclass(frozen=True)
class InProportion:
    """A decay that is `share` times the rate, so that a step asks for the rate only once."""

    rate: StepFunction
    share: Schedule

    def __call__(self, gradient: Params, params: Params, now: Position) -> Factor:
        """The decay at this step."""
        return self.to(self.rate(gradient, params, now), now)

    def to(self, rate: Factor, now: Position) -> Factor:
        """The decay that belongs to this rate."""
        share = self.share(now)
        return {n: share * one for n, one in rate.items()} if isinstance(rate, Mapping) else share * rate


def scale_gradient_and_decay(rate: StepFunction, decay: StepFunction) -> Transform:
    """`rate(g, x) g + decay(g, x) x`."""

    def both(gradient: Params, params: Params, now: Position) -> tuple[Factor, Factor]:
        by = rate(gradient, params, now)
        if isinstance(decay, InProportion) and decay.rate is rate:
            return by, decay.to(by, now)
        return by, decay(gradient, params, now)

    def direction(gradient: Params, params: Params, now: Position) -> Params:
        by, off = both(gradient, params, now)
        return {n: _of(by, n) * g + _of(off, n) * params[n] for n, g in gradient.items()}

    def one_pass(gradient: Params, before: float, state: State, params: Params, now: Position, lr: float) -> State:
        if before:
            return None
        by, off = map(_number, both(gradient, params, now))
        if not by or off is None:  # a factor for each tensor, or none for the gradient
            return None
        decayed_step(params, gradient, lr * by, off / by)
        return state

    def trial(gradient: Params, params: Params, now: Position) -> None:
        _try_function("rate", rate, smallest=0.0, given=(gradient, params, now))
        _try_function("decay", decay, smallest=-math.inf, given=(gradient, params, now))

    return stateless(direction)._replace(one_pass=one_pass, trial=trial)


def _try_function(field: str, function: StepFunction, smallest: float, given: tuple[Params, Params, Position]) -> None:
    """A factor scales every tensor; with a rate below 0 the model would go uphill."""
    values = "finite number" if smallest < 0 else f"finite number >= {smallest:g}"
    rule = f"a function of (gradient, weights, position) that returns a {values}, or one for each tensor by its name"
    try:
        found = function(*given)
    except Exception as error:  # the user's code
        what = f"{type(error).__name__} ({first_line(error)}){place_of(error)}"
        raise ConfigError(f"{field} must be {rule}. Got {what}.") from error
    for name, tensor in given[0].items():
        wrong = _wrong_factor(found, name, tensor, smallest)
        if wrong:
            raise ConfigError(f"{field} must be {rule}. Got {wrong}.")


def _wrong_factor(found: Factor, name: str, tensor: Tensor, smallest: float) -> str | None:
    """What cannot scale this tensor, in words."""
    if isinstance(found, Mapping) and name not in found:
        return f"nothing for {name!r}"
    where = f" for {name!r}" if isinstance(found, Mapping) else ""
    factor = _of(found, name)
    if not isinstance(factor, Tensor):
        return None if is_number(factor) and factor >= smallest else f"{shown(factor)}{where}"
    # A factor for each entry scales too, as long as the product has the tensor's form.
    try:
        product = factor * tensor
    except RuntimeError:  # torch's word for shapes that do not fit
        product = None
    if product is None or (product.shape, product.dtype) != (tensor.shape, tensor.dtype):
        return f"{tuple(factor.shape)} {factor.dtype} for {name!r}, which has {tuple(tensor.shape)} {tensor.dtype}"
    holds = bool((factor.isfinite() & (factor >= smallest)).all())
    return None if holds else f"{shown(factor.tolist())}{where}"


def _number(factor: Factor) -> float | None:
    """A factor of all tensors as Python reads it; None where it is something else."""
    if isinstance(factor, Tensor):
        return factor.item() if factor.dim() == 0 and is_plain(factor) else None
    return float(factor) if isinstance(factor, (int, float)) else None


def _of(factor: Factor, name: str) -> Scalar:
    return factor[name] if isinstance(factor, Mapping) else factor


def _share(of: Params, limit: Scalar) -> Scalar:
    """min(1, limit / norm), and 1 for a norm of 0."""
    known = plain_norm(of)
    if known is not None and not isinstance(limit, Tensor):
        return limit / known if known > limit or math.isnan(known) else 1.0
    length = norm(of)
    return torch.clamp(limit / length.clamp(min=torch.finfo(length.dtype).tiny), max=1.0)


def clipped_together(weight_decay: Rate, max_norm: Rate) -> tuple[StepFunction, StepFunction]:
    """Rate and decay of FedNAR's equations 3 and 4, over the learning rate: s and s u, s = min(1, A / ||g + u x||)."""
    u, limit = as_schedule(weight_decay), as_schedule(max_norm)

    def rate(gradient: Params, params: Params, now: Position) -> Scalar:
        return _share(add(gradient, params, u(now)), limit(now))

    return rate, InProportion(rate, u)


def gradient_clipped(weight_decay: Rate, max_norm: Rate) -> tuple[StepFunction, StepFunction]:
    """Rate and decay of equation 5: min(1, A / ||g||) and u, the decay that is not clipped."""
    u, limit = as_schedule(weight_decay), as_schedule(max_norm)
    return lambda gradient, params, now: _share(gradient, limit(now)), lambda gradient, params, now: u(now)


def bounded_decay(weight_decay: Rate, weight_norm: Rate) -> StepFunction:
    """mu min(1, c / ||x||): a decay that moves the weights by at most mu c (section 4.2)."""
    u, limit = as_schedule(weight_decay), as_schedule(weight_norm)
    return lambda gradient, params, now: u(now) * _share(params, limit(now))
