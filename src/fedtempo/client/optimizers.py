"""Client optimizers: how a local step turns the gradient into a direction, and what its state becomes between rounds.

The learning rate is the algorithm's (`lr`), so schedules, FedDecay and decaying rates work on every optimizer. In a
step the order is: gradient with its proximal and control terms; the algorithm's transforms, such as FedNAR's decay and
clipping; then the optimizer. So FedNAR bounds the input of the optimizer. AdamW's weight decay comes after it and is
not clipped: it is decoupled.

>>> adamw(weight_decay=0.01, state="keep")
adamw(weight_decay=0.01, state='keep')
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, ParamSpec, get_args, get_type_hints

import torch
from torch import nn

from fedtempo.client.muon import Muon
from fedtempo.client.transforms import (
    Transform,
    adam_in_one_pass,
    add_weight_decay,
    chain,
    identity,
    scale_by_adam,
    stateless,
)
from fedtempo.client.transforms import momentum as heavy_ball
from fedtempo.errors import ConfigError, bound_arguments, is_number, require
from fedtempo.params import Params, Selector, add, zeros_like
from fedtempo.schedules import Position, Rate, Schedule, checked_rate

Between = Literal["reset", "keep", "average"]
"""Between rounds: start afresh; stay with the client; be averaged like the model and come down with it."""


@dataclass(frozen=True)
class Optimizer:
    """A gradient transform that clients step with. Its state is a table of one tensor per trained tensor and slot."""

    transform: Transform = identity
    state: Between = "reset"
    """What becomes of its state between rounds. What belongs to personal tensors is kept where others are averaged."""
    afresh: frozenset[str] = frozenset()
    """Slots of the state that start afresh in every round, whatever becomes of the others."""
    at_end: Callable[[Any], Any] | None = None
    """The state as it is kept or sent, from the state after the round's last step; None takes it as it is."""
    name: str = "sgd"
    settings: Mapping[str, Any] = field(default_factory=dict)
    for_model: Callable[[nn.Module, str], Transform] | None = None
    """The transform for a model whose tensors stand under a prefix, where it depends on what kind of layer they are of.
    `transform` then only tells its schedules."""
    owns: frozenset[str] = frozenset()
    """What it sets, which no wrapper of the algorithm may set too."""

    def __post_init__(self) -> None:
        known = get_args(Between)
        require(self.state in known, "state", " or ".join(map(repr, known)), self.state)
        rule = "an ft.Transform of (init, update)"
        require(isinstance(self.transform, Transform), "transform", rule, self.transform)
        require(isinstance(self.afresh, frozenset), "afresh", "a frozenset of slots", self.afresh)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.settings.items())})"


NORMALISED = "the length of steps"
"""What optimizers own that give every step the same length; clipping and rates from gradients mean nothing there."""
plain = Optimizer()
"""y <- y - lr gradient."""

Arguments = ParamSpec("Arguments")


def _named(build: Callable[Arguments, Optimizer]) -> Callable[Arguments, Optimizer]:
    """Check arguments against their annotations, and let the optimizer print as the call that made it."""

    @functools.wraps(build)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Optimizer:
        signature, kinds = inspect.signature(build), get_type_hints(build)
        given = bound_arguments(build.__name__, signature, kinds, (args, kwargs), {Schedule: "a schedule"})
        return replace(build(**given), name=build.__name__, settings=given)  # type: ignore[call-arg]

    return call


@_named
def sgd(
    momentum: float = 0.0, *, nesterov: bool = False, weight_decay: Rate = 0.0, state: Between = "reset"
) -> Optimizer:
    """u <- momentum u + g, g = gradient + weight_decay y; the direction is u, with Nesterov g + momentum u.

    `torch.optim.SGD` without dampening. The state is u.
    """
    require(not nesterov or momentum > 0, "nesterov", "false without momentum", nesterov)
    return Optimizer(chain(_coupled(weight_decay), heavy_ball(momentum, nesterov)), state)


@_named
def adam(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, *, weight_decay: Rate = 0.0, state: Between = "reset"
) -> Optimizer:
    """m / (1 - b1^t) over sqrt(v / (1 - b2^t)) + eps, with weight_decay y inside the gradient: `torch.optim.Adam`.

    The state is m, v and the number of steps t, which `state="average"` averages too.
    """
    return Optimizer(chain(_coupled(weight_decay), scale_by_adam(b1, b2, eps, "moments")), state)


@_named
def adamw(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, *, weight_decay: Rate = 0.01, state: Between = "reset"
) -> Optimizer:
    """Adam's direction plus weight_decay y: `torch.optim.AdamW`, y <- y - lr (adam + weight_decay y)."""
    moments, decay = scale_by_adam(b1, b2, eps, "moments"), checked_rate(weight_decay, "weight_decay")
    if weight_decay == 0:
        return Optimizer(moments, state)
    kernel = adam_in_one_pass(b1, b2, eps, decoupled=True)

    def one_pass(gradient: Params, before: float, own: Any, params: Params, now: Position, rate: float) -> Any:
        here = decay(now)
        # A decay before Adam is part of the gradient; the kernel has only one of the two.
        if before != 0 or not isinstance(here, float):
            return None
        new = kernel(gradient, here, own[0], params, now, rate)
        return None if new is None else (new, *own[1:])

    return Optimizer(chain(moments, add_weight_decay(decay))._replace(one_pass=one_pass), state)


@_named
def rmsprop(
    smoothing: float = 0.99,
    eps: float = 1e-8,
    *,
    momentum: float = 0.0,
    centered: bool = False,
    weight_decay: Rate = 0.0,
    state: Between = "reset",
) -> Optimizer:
    """g / (sqrt(v) + eps), v <- smoothing v + (1 - smoothing) g^2, then momentum: `torch.optim.RMSprop`.

    `smoothing` is torch's alpha. `centered=True` takes the square of the mean gradient off v.
    """
    return Optimizer(
        chain(_coupled(weight_decay), _scale_by_rms(smoothing, eps, centered), heavy_ball(momentum)), state
    )


@_named
def muon(
    mu: float = 0.95,
    *,
    nesterov: bool = False,
    newton_schulz: str = "muloco",
    scale: str = "spectral",
    matrices: Selector | Literal["hidden", "all"] = "hidden",
    b1: float = 0.9,
    b2: float = 0.99,
    eps: float = 1e-8,
    weight_decay: Rate = 0.01,
    state: Between = "keep",
) -> Optimizer:
    """M <- mu M + g, y <- (1 - lr wd) y - lr f NS(M) on matrices; AdamW with the same lr and wd on all others.

    MuLoCo's inner step (2025). NS are five Newton-Schulz passes in the model's own type, with MuLoCo's coefficients or
    Muon's (`"quintic"`). f is sqrt(rows / columns) (`scale="spectral"`) or 0.2 sqrt(max(rows, columns)) (`"rms"`).
    `nesterov` takes NS(g + mu M). `matrices` are the weights of linear layers before the head (`"hidden"`), every
    tensor of two or more dimensions (`"all"`), or a selector. A kernel of a convolution has one row an output.
    """
    decay = checked_rate(weight_decay, "weight_decay")
    rule = Muon(mu, nesterov, newton_schulz, scale, scale_by_adam(b1, b2, eps, "moments"), decay, matrices)
    return Optimizer(
        stateless(_unfitted, weight_decay=rule.decay),
        state,
        for_model=functools.partial(Muon.for_model, rule),
        owns=frozenset({NORMALISED}),
    )


def _unfitted(gradient: Params, params: Params, now: Position) -> Params:
    raise ConfigError("muon must be fitted to a model before it steps: optimizer.for_model(model, '').")


def _coupled(weight_decay: Rate) -> Transform:
    """direction + weight_decay y; before the optimizer's own rule this is L2 regularisation."""
    decay = checked_rate(weight_decay, "weight_decay")
    return identity if weight_decay == 0 else add_weight_decay(decay)


def _scale_by_rms(smoothing: float, eps: float, centered: bool) -> Transform:
    require(is_number(smoothing) and 0 <= smoothing < 1, "smoothing", "a number in [0, 1)", smoothing)
    require(is_number(eps) and eps >= 0, "eps", "a number >= 0", eps)

    def init(params: Params) -> dict[str, Params]:
        return {"v": zeros_like(params), **({"mean": zeros_like(params)} if centered else {})}

    def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
        squares = {n: g * g for n, g in gradient.items()}
        v = {n: smoothing * state["v"][n] + (1 - smoothing) * g2 for n, g2 in squares.items()}
        if not centered:
            return {n: g / (torch.sqrt(v[n]) + eps) for n, g in gradient.items()}, {"v": v}
        mean = add({n: smoothing * m for n, m in state["mean"].items()}, gradient, 1 - smoothing)
        spread = {n: torch.sqrt(v[n] - mean[n] * mean[n]) + eps for n in v}
        return {n: g / spread[n] for n, g in gradient.items()}, {"v": v, "mean": mean}

    return Transform(init, update)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": sgd,
    "adam": adam,
    "adamw": adamw,
    "rmsprop": rmsprop,
    "muon": muon,
}
