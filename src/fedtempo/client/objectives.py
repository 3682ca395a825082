"""Objectives: what a local step minimises, given the data loss and what the client can see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedtempo.params import Params, Scalar, add, is_plain, scaled, subtract
from fedtempo.schedules import Now, Position, Rate, Schedule, as_schedule
from fedtempo.tasks import SAMPLE_WEIGHT, Batch


class Received(NamedTuple):
    """What came down this round: the shared model, and anything else the server sends (SCAFFOLD's c)."""

    shared: Params
    extra: Params


DRIFT = "_drift/"
"""Leads the names of c - c_i among a client's notes."""


class Forward(Protocol):
    """The model as a pure function of its tensors."""

    buffers: tuple[str, ...]
    """The names of its buffers. Neither function writes into those that it is given."""
    head_of_body: bool
    """Whether its outputs are those of its head on `features`, and nothing else."""

    def forward(self, params: Params, batch: Batch, train: bool = False) -> Tensor:
        """The model's outputs with these tensors."""
        ...

    def features(self, params: Params, batch: Batch, train: bool = False) -> Tensor:
        """The output of the model's `body`, which is the input of its `head`."""
        ...

    def features_updating(self, params: Params, batch: Batch, train: bool) -> Tensor:
        """The same; in training, `params` then holds the buffers as the body left them."""
        ...


class View(NamedTuple):
    """What an objective sees besides the batch: what came down, the local copy, personal tensors, scratch, network."""

    received: Received
    shared: Params
    personal: Params
    scratch: Params
    network: Forward
    """For objectives that look at another model's outputs or features on the batch, such as the received one's."""
    now: Position = Now()
    """Where the step stands: for corrections whose strength is a schedule."""


class Loss(Protocol):
    """The mean data loss at some parameters, and the model's buffers after the forward pass."""

    def __call__(
        self, params: Params, batch: Batch, weights: Tensor | None = None, shift: Tensor | None = None
    ) -> tuple[Tensor, Params]:
        """(loss, buffers); `weights` weigh the samples, `shift` is added to the model's outputs (FedRoD)."""
        ...


class Value(NamedTuple):
    """The objective to differentiate, the data loss to report, and the buffers afterwards."""

    total: Tensor
    loss: Tensor
    buffers: Params


Objective = Callable[[Loss, Params, Batch, View, Position], Value]
Correction = Callable[[View], Params]
"""What is added to the gradient as it is: the derivative of a linear term."""


def supervised(loss: Loss, params: Params, batch: Batch, view: View, now: Position) -> Value:
    """The data loss alone: f_i(y)."""
    value, buffers = loss(params, batch)
    return Value(value, value, buffers)


@dataclass(frozen=True)
class Steady:
    """A correction that stays the same during a round, such as SCAFFOLD's: no tensor of it changes with the weights."""

    of: Correction

    def __call__(self, view: View) -> Params:
        """The correction."""
        return self.of(view)


@dataclass(frozen=True)
class Pull:
    """A force mu (y - centre) on the weights. As a correction it is added to every gradient."""

    strength: Schedule
    centre: Callable[[View], Params]

    def __call__(self, view: View) -> Params:
        """mu (y - centre) at the client's shared tensors."""
        return scaled(subtract(self.centre(view), view.shared), -self.strength(view.now))

    def added(self, gradient: Params, params: Params, view: View) -> Params:
        """gradient + mu (y - centre), for the tensors that have a centre."""
        centre, mu = self.centre(view), self.strength(view.now)
        away = {n: params[n] - centre[n] for n in gradient if n in centre}
        return {**gradient, **add({n: gradient[n] for n in away}, away, mu)}


@dataclass(frozen=True)
class Pulled:
    """f_i(y) + (mu / 2) ||y - centre||^2. The term's gradient is mu (y - centre), so only f_i needs torch's tape."""

    name: str
    pull: Pull

    def __call__(self, loss: Loss, params: Params, batch: Batch, view: View, now: Position) -> Value:
        """The objective at these parameters."""
        value, buffers = loss(params, batch)
        return self.value(Value(value, value, buffers), params, view, now)

    def value(self, of_loss: Value, params: Params, view: View, now: Position) -> Value:
        """The objective, from the value of f_i."""
        distance = _half_distance(params, self.pull.centre(view), self.pull.strength(now))
        return of_loss._replace(total=of_loss.total + distance)


def proximal(strength: Rate) -> Objective:
    """f_i(y) + (mu / 2) ||y - x||^2 with x the model received: FedProx's mu, Ditto's lambda."""
    return Pulled("proximal", Pull(as_schedule(strength), lambda view: view.received.shared))


def moreau(strength: Rate) -> Objective:
    """f_i(theta) + (lambda / 2) ||theta - w||^2 with w the client's current local model: pFedMe (eq. 3)."""
    return Pulled("moreau", Pull(as_schedule(strength), lambda view: view.shared))


def control(view: View) -> Params:
    """c - c_i, which makes a gradient SCAFFOLD's corrected one, g - c_i + c; it is among the notes."""
    return {n: view.scratch[DRIFT + n] for n in view.received.extra if DRIFT + n in view.scratch}


def mixture(loss: Loss, params: Params, batch: Batch, view: View, now: Position) -> Value:
    """sum_m mean_s q_m(s) loss_m(s): FedEM's M-step, with the responsibilities q of the E-step in the batch.

    Parameters carry the components on their first dimension.
    """
    components = next(iter(params.values())).shape[0]
    values = [loss(component(params, m), batch, batch["_responsibilities"][:, m]) for m in range(components)]
    total = sum((value for value, _ in values[1:]), values[0][0])
    buffers = {name: torch.stack([b[name] for _, b in values]) for name in values[0][1]}
    return Value(total, total, buffers)


def component(params: Params, index: int) -> Params:
    """One component of a mixture."""
    return {name: p[index] for name, p in params.items()}


def of_this_client(params: Params, anchor: Tensor, network: Forward) -> Params:
    """The same numbers, depending on a tensor of the client's own.

    Side by side the received tensors are there once for all clients. BatchNorm cannot write its statistics into those,
    and recurrent layers need weights that a gradient may be asked for.
    """
    if is_plain(anchor):
        return params
    zero = 0 * anchor.sum()
    zeros = {n: zero.detach() if n in network.buffers else zero for n in params}
    return {n: t + zeros[n].to(t.dtype) if t.is_floating_point() else t for n, t in params.items()}


def mean_of_rows(values: Tensor, batch: Batch) -> Tensor:
    """The mean of one number per row, in which rows count as they do in the loss."""
    counts = torch.ones_like(values)
    for name in (SAMPLE_WEIGHT, "_rows"):
        counts = counts * batch[name].to(values.dtype) if name in batch else counts
    total = counts.sum()
    return (values * counts).sum() / torch.where(total > 0, total, torch.ones_like(total))


def _half_distance(params: Params, centre: Params, strength: Scalar) -> Tensor | float:
    shared = [n for n, p in params.items() if n in centre and p.is_floating_point()]
    return 0.5 * strength * sum(((params[n] - centre[n]) ** 2).sum() for n in shared)
