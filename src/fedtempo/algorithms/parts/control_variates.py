"""SCAFFOLD's clients: how c_i corrects local steps, and the two ways to find the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from fedtempo.algorithms.algorithm import Algorithm, Memory
from fedtempo.algorithms.parts.notes import NextNotes, UseNotes, notes_of, noting
from fedtempo.algorithms.parts.sum_of_rates import TRAVELLED, add_rate, sum_of_rates
from fedtempo.client.network import Network
from fedtempo.client.objectives import DRIFT, Received
from fedtempo.client.phase import Carry, Enter, StepInfo
from fedtempo.client.rules import zero_of
from fedtempo.params import Params, combine, is_plain, select, zeros_like
from fedtempo.schedules import Position
from fedtempo.tasks import Batch, Task

CONTROL = "_control/"
"""Leads the names of c_i among what a client keeps."""
GRADIENT = "_gradient/"
"""Leads the names of grad f_i(x) among a client's notes, where option I takes it."""
SHARE = "_share"
"""The scratch entry that holds what a client's change of c_i counts in c: 1, or n_i / n."""


class ControlVariate(NamedTuple):
    """One of SCAFFOLD's two options for c_i."""

    begin: UseNotes
    """How c_i enters the round."""
    enter: Enter | None
    """What is computed before the first step."""
    next: NextNotes
    """c_i+, which the client keeps."""
    change: Callable[[Received, Carry, Params], Params]
    """(what came down, carry after the last step, displacement) -> c_i+ - c_i, which the client sends."""


def control_memory(plain: Algorithm, variate: ControlVariate) -> Memory:
    """A client keeps c_i for the tensors that it shares, out of sight of its model: a personal head has none."""
    return noting(plain, CONTROL, _zero, variate.begin, variate.next)


def _zero(shared: Params, trained: frozenset[str]) -> Params:
    return zeros_like(select(shared, trained))


def _begin(received: Received, own: Params) -> tuple[Received, Params]:
    # c - c_i is constant during a round, so it is computed once and not at every step.
    drift = {DRIFT + n: c - own[n] for n, c in received.extra.items() if n in own}
    zero = zero_of(received.shared)
    return received, {TRAVELLED: zero, SHARE: torch.ones_like(zero), **drift}


def add_rate_and_share(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
    """Add the step's rate to the sum of rates, and note n_i / n."""
    share = now.value(lambda here: here.samples / here.total_samples)
    carry = add_rate(carry, step, received, now)
    return carry._replace(scratch={**carry.scratch, SHARE: share + 0 * carry.scratch[TRAVELLED]})


def _begin_with_gradient(received: Received, own: Params) -> tuple[Received, Params]:
    # `_full_gradient` replaces the zeros. They are there because `vmap` needs the same tensors before and after.
    _, scratch = _begin(received, own)
    return received, {**scratch, **{GRADIENT + n: torch.zeros_like(c) for n, c in own.items()}}


def _full_gradient(network: Network, task: Task, received: Received, carry: Carry, data: Batch) -> tuple[Carry, Batch]:
    """Option I's grad f_i(x), before the first step."""
    trained, others = select(carry.shared, notes_of(carry, CONTROL)), combine(carry.shared, carry.personal)

    def loss(params: Params) -> torch.Tensor:
        return network.loss(task, {**others, **params}, data)

    found = {GRADIENT + n: g for n, g in torch.func.grad(loss)(trained).items()}
    return carry._replace(scratch={**carry.scratch, **found}), data


def _own_gradient(received: Received, carry: Carry, own: Params) -> Params:
    """Option I's c_i+ = grad f_i(x)."""
    return {n: carry.scratch[GRADIENT + n] for n in own}


def _change_of_gradient(received: Received, carry: Carry, delta: Params) -> Params:
    """Option I's c_i+ - c_i = grad f_i(x) - c_i."""
    return {n: carry.scratch[GRADIENT + n] - own for n, own in notes_of(carry, CONTROL).items()}


def _own_mean_direction(received: Received, carry: Carry, own: Params) -> Params:
    """Option II's c_i+ = (x - y_K) / sum_k l_k - (c - c_i)."""
    travelled = sum_of_rates(carry)
    # A tensor of one number per client does not raise the type of the others, so every step may overwrite the last.
    found = {n: (received.shared[n] - carry.shared[n]).div_(travelled).sub_(carry.scratch[DRIFT + n]) for n in own}
    return _if_moved(carry, found, own)


def _change_of_direction(received: Received, carry: Carry, delta: Params) -> Params:
    """Option II's c_i+ - c_i = (x - y_K) / sum_k l_k - c."""
    travelled = -sum_of_rates(carry)
    change = {n: (delta[n] / travelled).to(delta[n].dtype).sub_(received.extra[n]) for n in notes_of(carry, CONTROL)}
    return _if_moved(carry, change)


def _if_moved(carry: Carry, found: Params, otherwise: Params | None = None) -> Params:
    """What was found; where all rates were 0 the client has learnt nothing, and it is `otherwise`, or zeros."""
    moved = carry.scratch[TRAVELLED] > 0
    if is_plain(moved) and bool(moved):  # the usual case, without a pass over the tensors
        return found
    return {n: torch.where(moved, t, 0.0 if otherwise is None else otherwise[n]) for n, t in found.items()}


OPTIONS = {
    "I": ControlVariate(_begin_with_gradient, _full_gradient, _own_gradient, _change_of_gradient),
    "II": ControlVariate(_begin, None, _own_mean_direction, _change_of_direction),
}
"""The gradient at the received model, or the mean direction of the local steps."""
