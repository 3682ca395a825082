"""Rules that read gradients: how long a step is, when a client stops, and where its gradient is taken.

A schedule knows the round and the step, and nothing else. These rules see the step's gradient and loss as well. They
are written for one client; under `vmap` their numbers are tensors with one entry per client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtempo.client.objectives import Received, Value, View
from fedtempo.params import Params, Scalar, is_plain
from fedtempo.schedules import Now, Position, Schedule

GradientAt = Callable[[Params], tuple[Params, Value]]
"""The gradient and the value of the objective at other parameters, on the step's own batch and dropout masks."""
Look = Callable[[GradientAt, View, Position], GradientAt]
"""(gradient function, what the client sees, position) -> the gradient function to use instead."""
State = dict[str, Any]
"""Tensors, and tables of tensors, by name."""


class Probe(NamedTuple):
    """What a rule sees of one step, before the step is taken."""

    gradient: Params
    """The objective's gradient at `params`: before corrections, weight decay, clipping and the optimizer."""
    loss: Tensor
    """The objective that the gradient belongs to, with its proximal term."""
    params: Params
    gradient_at: Callable[[Params], Params]
    """The objective's gradient at other parameters, on the same batch."""
    received: Received
    base: Scalar
    """The schedule's learning rate at the first step of this round."""
    of_data: tuple[Params, Tensor] | None = None
    """Gradient and loss of the data alone, without a proximal term; None where the objective cannot tell."""


class RateRule(NamedTuple):
    """A learning rate that follows the gradients. A decay inside the round multiplies what it says."""

    init: Callable[[Params], State]
    update: Callable[[Probe, State, Position], tuple[Scalar, State]]
    """(probe, state, position) -> (the step's learning rate, state)."""
    keeps_state: bool = False
    """Whether the state stays with the client between rounds; otherwise every round starts afresh."""
    probes_other_points: bool = False
    """Whether it asks for gradients at other points."""
    needs_data: bool = False
    """Whether it reads gradient and loss of the data alone, which not every objective can tell."""
    schedules: tuple[tuple[str, Schedule], ...] = ()
    from_server: bool = False
    """Whether it only takes the server's rate. A user who is fine-tuned at a rate of its own is then left without it.
    """


class StopRule(NamedTuple):
    """When a client stops before its last planned step."""

    init: Callable[[Params], State]
    update: Callable[[Probe, State, Position], tuple[Tensor | bool, State]]
    """(probe, state, position) -> (whether to stop before this step, state)."""


class PhaseState(NamedTuple):
    """The states of one phase."""

    direction: Any
    optimizer: Any
    rate: State
    """The rate rule's state, the sum of its rates and their number."""
    stop: State
    """The stop rule's state, and whether the client has stopped."""


def zero_of(params: Params) -> Tensor:
    """A zero in float64, on the parameters' device."""
    return torch.zeros((), dtype=torch.float64, device=next(iter(params.values())).device)


def first_rate_state(rule: RateRule, trained: Params) -> State:
    """The state of a phase's rate rule at the start of a round."""
    return {"rule": rule.init(trained), "rate": zero_of(trained), "rate_steps": zero_of(trained)}


def first_stop_state(rule: StopRule, trained: Params) -> State:
    """The state of a phase's stop rule at the start of a round."""
    return {"rule": rule.init(trained), "stopped": zero_of(trained)}


def base_rate(lr: Schedule, now: Position) -> Scalar:
    """The rate of the round's first step."""
    if lr.is_constant:
        return lr(now)
    return now.value(lambda here: lr.at(replace(here, step=0, epoch=0)))


def ruled_rate(rule: RateRule, lr: Schedule, probe: Probe, state: State, now: Position) -> tuple[Scalar, State]:
    """The rule's rate times the decay inside the round, b_k = lr(t, k) / lr(t, 0), and the next state.

    The rule itself does not see the decay: its recursion goes on with the rate before b_k.
    """
    found, after = rule.update(probe, state["rule"], now)
    decay = 1.0 if lr.is_constant else now.value(lambda here: _decay(lr, here))
    rate = found if isinstance(decay, float) and decay == 1.0 else found * decay
    if isinstance(rate, Tensor) and is_plain(rate):
        rate = rate.item()
    return rate, {"rule": after, "rate": state["rate"] + rate, "rate_steps": state["rate_steps"] + 1.0}


def _decay(lr: Schedule, here: Now) -> float:
    first = lr.at(replace(here, step=0, epoch=0))
    return lr.at(here) / first if first else 0.0


def stopped(rule: StopRule, probe: Probe, state: State, now: Position) -> tuple[Tensor, State]:
    """Whether the client stops before this step, as 0 or 1, and the next state. A stopped client stays stopped."""
    stops, after = rule.update(probe, state["rule"], now)
    before = state["stopped"]
    if isinstance(stops, bool):
        over = torch.ones_like(before) if stops else before
    else:
        over = torch.maximum(before, stops.to(torch.float64))
    return over, {"rule": after, "stopped": over}
