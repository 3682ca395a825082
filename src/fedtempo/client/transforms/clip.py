"""Clipping by one Euclidean norm over all parameters."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedtempo.client.kernels import LONG_TYPES
from fedtempo.client.transforms.transform import State, Transform
from fedtempo.errors import takes_numbers
from fedtempo.params import Params, norm, plain_norm, scaled
from fedtempo.schedules import Position, Rate, as_schedule

ROUNDING = 0.01
"""How much longer a computed norm may be than the true one, as a share of it: far more than rounding has shown."""


@takes_numbers
def clip_by_global_norm(limit: Rate, eps: float = 0.0) -> Transform:
    """`min(1, limit / (norm + eps)) * gradient` with one norm over all parameters.

    Counts the steps it shortened, and their norms. torch's `clip_grad_norm_` has eps=1e-6.
    """
    bound = as_schedule(limit)

    def init(params: Params) -> dict[str, Tensor]:
        zero = torch.zeros((), dtype=torch.float64, device=next(iter(params.values())).device)
        return {"clipped_steps": zero, "clipped_norm": zero, "weights": zero + math.inf}

    def update(gradient: Params, state: State, params: Params, now: Position) -> tuple[Params, State]:
        # How far this step goes is not known here, so nothing is known of the weights' norm after it.
        most, state = bound(now), {**state, "weights": torch.full_like(state["weights"], math.inf)}
        if isinstance(most, (int, float)):
            plain = plain_norm(gradient)
            if plain is not None:
                return _clipped(gradient, state, plain, most, eps)
        length = norm(gradient)
        over = (length > most).to(torch.float64)
        factor = torch.clamp(most / (length + eps), max=1.0)
        counts = {
            **state,
            "clipped_steps": state["clipped_steps"] + over,
            "clipped_norm": state["clipped_norm"] + over * length.to(torch.float64),
        }
        return scaled(gradient, factor), counts

    def alone(
        gradient: Params, decay: float, state: State, params: Params, now: Position, rate: float
    ) -> tuple[float, State] | None:
        most = bound(now)
        # A client that was clipped will be clipped again, as a rule: a bound would cost time and say nothing. Nor is a
        # device asked, which would be waited for.
        if not state["weights"].is_cpu or not isinstance(most, (int, float)) or state["clipped_steps"].item():
            return None
        length, weights = _lengths_at_most(gradient, decay, params, state["weights"].item())
        if not length + eps <= most:
            return None
        # `torch.full` takes half of the time of `torch.tensor`, which looks at what it is given first.
        return decay, {**state, "weights": torch.full((), weights + rate * length, dtype=torch.float64)}

    return Transform(init, update, _clip_counts, (("max_norm", bound),), alone)


def _clip_counts(state: State) -> dict[str, Tensor]:
    return {name: state[name] for name in ("clipped_steps", "clipped_norm")}


def _lengths_at_most(gradient: Params, decay: float, params: Params, weights: float) -> tuple[float, float]:
    """Upper bounds of ||gradient + decay params|| and of ||params||, without a pass that makes the sum.

    `weights` is what is known of ||params||: infinity where nothing is. Both are infinite where a bound takes long, and
    in short floating-point types, whose norms are too coarse to be compared with a limit.
    """
    found = plain_norm(gradient) if all(g.dtype in LONG_TYPES for g in gradient.values()) else None
    if found is None:
        return math.inf, math.inf
    if decay == 0:
        return found, math.inf
    if math.isinf(weights):
        measured = plain_norm({n: params[n] for n in gradient})
        weights = math.inf if measured is None else measured * (1 + ROUNDING)
    return (found + abs(decay) * weights) * (1 + ROUNDING), weights


def _clipped(gradient: Params, state: State, length: float, most: float, eps: float) -> tuple[Params, State]:
    """The same for a single client, where a gradient within the limit can be returned as it is."""
    if length > most:
        counts = {"clipped_steps": state["clipped_steps"] + 1.0, "clipped_norm": state["clipped_norm"] + length}
        state = {**state, **counts}
    short_enough = length + eps <= most
    return gradient if short_enough else scaled(gradient, most / (length + eps)), state
