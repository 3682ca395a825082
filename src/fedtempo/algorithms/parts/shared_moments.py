"""FedAdamW's AdamW: the first moment counts the steps of the round, the second those of the run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedtempo.client.kernels import adam_step
from fedtempo.client.transforms import Transform, add_weight_decay, chain
from fedtempo.errors import is_number, require
from fedtempo.params import Params, Scalar, zeros_like
from fedtempo.schedules import Position, Schedule, step_number


def adamw_with_shared_moments(
    b1: float, b2: float, eps: float, weight_decay: Schedule, second_moment: str, one_count: bool
) -> Transform:
    """`mhat / (sqrt(vhat) + eps) + weight_decay params`; v may start from one mean per tensor (`"block_mean"`)."""
    for name, value in (("b1", b1), ("b2", b2)):
        require(is_number(value) and 0 <= value < 1, name, "a number in [0, 1)", value)
    from_means = second_moment == "block_mean"

    def init(params: Params) -> dict[str, Params]:
        zeros = {n: torch.zeros((), dtype=p.dtype, device=p.device) for n, p in params.items()}
        return {"m": zeros_like(params), "v": zeros_like(params), "mean": zeros, "begun": dict(zeros)}

    def counts(now: Position) -> tuple[float, Scalar]:
        """The step's number in its round, and the number that v is corrected with."""
        local = float(step_number(now) + 1)
        return local, local if second_moment == "reset" else now.value(lambda h: float(h.earlier + h.step + 1))

    def begun(state: Any, local: float) -> Any:
        """The state before the step, where v starts from the means with the first."""
        if not from_means or local > 1:
            return state
        ones = {n: torch.ones_like(mean) for n, mean in state["mean"].items()}
        return {**state, "v": _filled(state["mean"], state["v"]), "begun": ones}

    def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
        local, whole = counts(now)
        state = begun(state, local)
        m = {n: b1 * state["m"][n] + (1 - b1) * g for n, g in gradient.items()}
        v = {n: b2 * state["v"][n] + (1 - b2) * g * g for n, g in gradient.items()}
        first, second = 1 - b1 ** (whole if one_count else local), 1 - b2**whole
        return {n: m[n] / first / ((v[n] / second) ** 0.5 + eps) for n in m}, {**state, "m": m, "v": v}

    def one_pass(gradient: Params, decay: float, state: Any, params: Params, now: Position, rate: float) -> Any:
        (local, whole), off = counts(now), weight_decay(now)
        if decay or not (rate and isinstance(whole, float) and isinstance(off, (int, float))):
            return None
        # The kernel corrects both moments with one count. A rate in this proportion undoes that for the first, and the
        # decay is multiplied by the rate as well.
        share = 1.0 if one_count else (1 - b1**whole) / (1 - b1**local)
        own = begun(state[0], local)
        moments = own["m"], own["v"]
        if not adam_step(params, gradient, moments, whole, rate * share, (b1, b2), eps, off / share, True):
            return None
        return own, state[1]

    both = chain(Transform(init, update), add_weight_decay(weight_decay))
    return both._replace(one_pass=one_pass)


def with_block_means(state: tuple[dict[str, Params], tuple[()]]) -> tuple[dict[str, Params], tuple[()]]:
    """The state at the end of a round, with the mean of every tensor of v; only this mean is sent."""
    own, decay = state
    # The mean of no numbers would be NaN, and the whole upload refused.
    found = {n: v.sum() / max(v.numel(), 1) for n, v in own["v"].items()}
    # A client that took no step has no v yet, and sends the means that it received.
    means = {n: torch.where(own["begun"][n] > 0, mean, own["mean"][n]) for n, mean in found.items()}
    return {**own, "mean": means}, decay


def _filled(means: dict[str, Tensor], like: Params) -> Params:
    return {n: torch.zeros_like(t) + means[n] for n, t in like.items()}
