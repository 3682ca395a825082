"""Transforms that divide the gradient by the root of its second moment: Adam, Yogi, Adagrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from fedtempo.client.kernels import adam_step
from fedtempo.client.transforms.transform import OnePass, State, Transform
from fedtempo.errors import is_number, require, takes_numbers
from fedtempo.params import Params, zeros_like
from fedtempo.schedules import Position, Rate, checked_rate

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

    def update(gradient: Params, state: State, params: Params, now: Position) -> tuple[Params, State]:
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
    adam = _second_moment(b1, b2, eps, start, lambda v, g2: b2 * v + (1 - b2) * g2, corrects)
    return adam._replace(one_pass=adam_in_one_pass(b1, b2, eps)) if corrects == "moments" else adam


def adam_in_one_pass(b1: float, b2: float, eps: float, decoupled: bool = False) -> OnePass:
    """torch's Adam by its kernel; `decoupled` takes the decay off the weights, as AdamW does."""

    def take(gradient: Params, decay: float, state: State, params: Params, now: Position, rate: float) -> State:
        if any(not moment.is_cpu for moment in state["m"].values()):  # the kernel is the CPU's, and reading would wait
            return None
        counts = {count.item() + 1 for count in state["count"].values()}
        # The kernel has one count for all, of few digits; counts that were averaged over clients may differ.
        if len(counts) != 1 or not (count := counts.pop()).is_integer():
            return None
        moments = state["m"], state["v"]
        if not adam_step(params, gradient, moments, count, rate, (b1, b2), eps, decay, decoupled):
            return None
        torch._foreach_add_(list(state["count"].values()), 1)
        return state

    return take


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

    def update(gradient: Params, state: State, params: Params, now: Position) -> tuple[Params, State]:
        m = {n: b1 * state["m"][n] + (1 - b1) * g for n, g in gradient.items()}
        v = {n: b2 * state["v"][n] + (1 - b2) * m[n] * m[n] for n in m}
        return {n: m[n] / (1 - b1) / torch.sqrt(v[n] / (1 - b2) + offset(now)) for n in m}, {"m": m, "v": v}

    start = lambda params: {"m": zeros_like(params), "v": zeros_like(params)}  # noqa: E731
    return Transform(start, update, schedules=(("eps", offset),))
