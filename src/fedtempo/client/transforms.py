"""Gradient transforms: an optimizer is two pure functions, on the client and on the server alike.

`init(params)` makes the state, `update(gradient, state, params, now)` turns a gradient into a
direction and the next state. They chain, so FedNAR is the *order* of two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from fedtempo.errors import is_number, require, takes_numbers
from fedtempo.params import Params, add, norm, plain_norm, scaled, zeros_like
from fedtempo.schedules import Position, Rate, Schedule, as_schedule, checked_rate


def _no_measurements(state: Any) -> dict[str, Tensor]:
    return {}


class Transform(NamedTuple):
    """Two pure functions, and a third that reads measurements (such as clip counts) off the state."""

    init: Callable[[Params], Any]
    update: Callable[[Params, Any, Params, Position], tuple[Params, Any]]
    measurements: Callable[[Any], dict[str, Tensor]] = _no_measurements
    schedules: tuple[tuple[str, Schedule], ...] = ()
    """Name and schedule of every rate inside, so that a plan can be printed before a run."""


def stateless(fn: Callable[[Params, Params, Position], Params], **rates: Schedule) -> Transform:
    """A transform without memory from `fn(gradient, params, now)`."""
    return Transform(lambda params: (), lambda g, s, p, now: (fn(g, p, now), s), schedules=tuple(rates.items()))


def _nothing(params: Params) -> tuple[()]:
    return ()


def _as_it_is(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
    return gradient, state


identity = Transform(_nothing, _as_it_is)


def is_identity(transform: Transform) -> bool:
    """Whether a transform changes nothing; one that came to a worker as bytes is no longer `identity` itself."""
    return transform.update is _as_it_is


def chain(*transforms: Transform) -> Transform:
    """One transform after the other."""
    active = [t for t in transforms if not is_identity(t)]
    if len(active) < 2:
        return active[0] if active else identity

    def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
        states = []
        for transform, part in zip(active, state, strict=True):
            gradient, new = transform.update(gradient, part, params, now)
            states.append(new)
        return gradient, tuple(states)

    def measurements(state: Any) -> dict[str, Tensor]:
        return {k: v for t, part in zip(active, state, strict=True) for k, v in t.measurements(part).items()}

    return Transform(
        lambda params: tuple(t.init(params) for t in active),
        update,
        measurements,
        tuple(entry for t in active for entry in t.schedules),
    )


def scale(factor: Rate) -> Transform:
    """`factor * gradient`."""
    rate = as_schedule(factor)
    return stateless(lambda g, p, now: scaled(g, rate(now)), scale=rate)


def add_weight_decay(rate: Rate) -> Transform:
    """`gradient + rate * params`: torch's `weight_decay`, FedNAR's u_t / l_t."""
    decay = as_schedule(rate)
    return stateless(lambda g, p, now: add(g, p, decay(now)), weight_decay=decay)


@takes_numbers
def clip_by_global_norm(limit: Rate, eps: float = 0.0) -> Transform:
    """`min(1, limit / (norm + eps)) * gradient` with one norm over all parameters.

    Counts the steps it shortened, and their norms. torch's `clip_grad_norm_` has eps=1e-6.
    """
    bound = as_schedule(limit)

    def init(params: Params) -> dict[str, Tensor]:
        zero = torch.zeros((), dtype=torch.float64, device=next(iter(params.values())).device)
        return {"clipped_steps": zero, "clipped_norm": zero}

    def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
        most = bound(now)
        if isinstance(most, (int, float)):
            plain = plain_norm(gradient)
            if plain is not None:
                return _clipped(gradient, state, plain, most, eps)
        length = norm(gradient)
        over = (length > most).to(torch.float64)
        factor = torch.clamp(most / (length + eps), max=1.0)
        counts = {
            "clipped_steps": state["clipped_steps"] + over,
            "clipped_norm": state["clipped_norm"] + over * length.to(torch.float64),
        }
        return scaled(gradient, factor), counts

    return Transform(init, update, lambda state: state, (("max_norm", bound),))


def _clipped(gradient: Params, state: Any, length: float, most: float, eps: float) -> tuple[Params, Any]:
    """The same for a single client, where a gradient within the limit can be returned as it is."""
    if length > most:
        state = {"clipped_steps": state["clipped_steps"] + 1.0, "clipped_norm": state["clipped_norm"] + length}
    short_enough = length + eps <= most
    return gradient if short_enough else scaled(gradient, most / (length + eps)), state


@takes_numbers
def momentum(decay: float, nesterov: bool = False) -> Transform:
    """`u <- decay * u + gradient`, no dampening: FedAvgM's server and torch's SGD momentum."""
    require(is_number(decay) and 0 <= decay < 1, "momentum", "a number in [0, 1)", decay)
    if decay == 0:
        return identity

    def update(gradient: Params, velocity: Any, params: Params, now: Position) -> tuple[Params, Any]:
        velocity = add(gradient, velocity, decay)
        return (add(gradient, velocity, decay) if nesterov else velocity), velocity

    return Transform(zeros_like, update)


Correction = Literal["nothing", "rate", "moments"]


def _second_moment(
    b1: float, b2: float, eps: float, initial: float, grow: Callable[[Tensor, Tensor], Tensor], corrects: Correction
) -> Transform:
    """Adam, Yogi and Adagrad differ only in how the second moment `v` grows."""
    require(is_number(b1) and 0 <= b1 < 1, "b1", "a number in [0, 1)", b1)
    require(is_number(b2) and 0 <= b2 < 1, "b2", "a number in [0, 1)", b2)
    require(is_number(eps) and eps >= 0, "eps", "a number >= 0", eps)

    def init(params: Params) -> dict[str, Params]:
        # Each tensor has its own count, as in torch: tensors may be trained by different clients.
        counts = {n: torch.zeros((), dtype=torch.float64, device=p.device) for n, p in params.items()}
        moments = {"m": zeros_like(params), "v": {n: torch.full_like(p, initial) for n, p in params.items()}}
        return moments if corrects == "nothing" else {"count": counts, **moments}

    def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
        m = {n: b1 * state["m"][n] + (1 - b1) * g for n, g in gradient.items()}
        v = {n: grow(state["v"][n], g * g) for n, g in gradient.items()}
        if corrects == "nothing":
            return {n: m[n] / (torch.sqrt(v[n]) + eps) for n in m}, {"m": m, "v": v}
        counts = {n: count + 1 for n, count in state["count"].items()}
        return {n: corrected(m[n], v[n], counts[n]) for n in m}, {"count": counts, "m": m, "v": v}

    def corrected(m: Tensor, v: Tensor, count: Tensor) -> Tensor:
        first, second = (1 - b1**count).to(m.dtype), torch.sqrt(1 - b2**count).to(m.dtype)
        if corrects == "moments":
            return m / first / (torch.sqrt(v) / second + eps)
        return second / first * m / (torch.sqrt(v) + eps)

    return Transform(init, update)


@takes_numbers
def scale_by_adam(
    b1: float = 0.9, b2: float = 0.99, eps: float = 1e-3, corrects: Correction = "nothing", initial: float | None = None
) -> Transform:
    """`m / (sqrt(v) + eps)` with v <- b2 v + (1 - b2) g^2: FedAdam of Reddi et al., without bias correction.

    `corrects="rate"` multiplies by `sqrt(1 - b2^t) / (1 - b1^t)`, t from 1, and adds eps to the uncorrected root
    (decaying-K paper, Algorithm 3); `"moments"` corrects m and v first, as torch's Adam does. v starts at
    `initial`: eps**2 by default as Reddi et al. ask, 0 with a correction.
    """
    start = initial if initial is not None else (eps**2 if corrects == "nothing" else 0.0)
    return _second_moment(b1, b2, eps, start, lambda v, g2: b2 * v + (1 - b2) * g2, corrects)


@takes_numbers
def scale_by_yogi(b1: float = 0.9, b2: float = 0.99, eps: float = 1e-3, initial: float | None = None) -> Transform:
    """As Adam, with v <- v - (1 - b2) g^2 sign(v - g^2) (Reddi et al., Algorithm 2)."""
    start = initial if initial is not None else eps**2
    return _second_moment(b1, b2, eps, start, lambda v, g2: v - (1 - b2) * g2 * torch.sign(v - g2), "nothing")


@takes_numbers
def scale_by_adagrad(b1: float = 0.0, eps: float = 1e-3, initial: float | None = None) -> Transform:
    """As Adam, with v <- v + g^2 (Reddi et al., Algorithm 2)."""
    start = initial if initial is not None else eps**2
    return _second_moment(b1, 0.0, eps, start, lambda v, g2: v + g2, "nothing")


@takes_numbers
def scale_by_fednar_adam(eps: Rate = 0.01, b1: float = 0.9, b2: float = 0.99) -> Transform:
    """Adam as the FedNAR and FedExP code has it, to reproduce their tables only.

    v averages the squared *momentum*, constants stand in for the bias correction, and eps is inside the root:
    `(m / (1 - b1)) / sqrt(v / (1 - b2) + eps)`.
    """
    offset = checked_rate(eps, "eps")
    for name, decay in (("b1", b1), ("b2", b2)):
        require(is_number(decay) and 0 <= decay < 1, name, "a number in [0, 1)", decay)

    def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
        m = {n: b1 * state["m"][n] + (1 - b1) * g for n, g in gradient.items()}
        v = {n: b2 * state["v"][n] + (1 - b2) * m[n] * m[n] for n in m}
        return {n: m[n] / (1 - b1) / torch.sqrt(v[n] / (1 - b2) + offset(now)) for n in m}, {"m": m, "v": v}

    start = lambda params: {"m": zeros_like(params), "v": zeros_like(params)}  # noqa: E731
    return Transform(start, update, schedules=(("eps", offset),))


@takes_numbers
def sgd(lr: Rate, momentum_decay: float = 0.0) -> Transform:
    """`lr * gradient`, with heavy-ball momentum if asked for."""
    rate = as_schedule(lr)
    descent = stateless(lambda g, p, now: scaled(g, rate(now)), lr=rate)
    return chain(momentum(momentum_decay), descent) if momentum_decay else descent
