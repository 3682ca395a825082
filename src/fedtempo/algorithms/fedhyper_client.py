"""FedHyper on the client: each step's rate follows the agreement with the last step and the last round."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import named
from fedtempo.algorithms.parts.last_mean import sending_last_mean
from fedtempo.algorithms.parts.rate_rules import check_bounds, ruled, sharing
from fedtempo.client.rules import Probe, RateRule, State, zero_of
from fedtempo.params import Params, Scalar, add, inner, plain_inner, subtract, zeros_like
from fedtempo.schedules import Position, step_number
from fedtempo.server.step import Server, inside

LAST = "_hyper/"
"""Leads the names of the last mean displacement among what comes down."""
GROWTH = 1.1
"""The authors' code lets a rate grow by at most this factor in a step."""


@named
def fedhyper_client(
    algorithm: Algorithm,
    *,
    step: float = 1.0,
    eps: float = 0.2,
    smallest: float = 0.1,
    largest: float = 10.0,
    form: Literal["sum", "product"] = "sum",
) -> Algorithm:
    """l_k = clip(l_{k-1} + step <g_k, g_{k-1}> (1 + eps sign<g_k, -D>), smallest l_0, largest l_0), used with g_k.

    Wang et al. (2024), FedHyper-CL; D is the last round's mean displacement, which comes down with the model, and the
    sign is 0 before there is one. l_0 is the algorithm's `lr`, anew in every round. `form="product"` is the rule of the
    authors' code, which has eps=0.1: with the step d_k = y_{k+1} - y_k and the one before, at first D, l_{k+1} =
    clip(l_k min(1.1, 1 + step (eps <d_k, D> / |S| + <d_k, d_before>)), the same bounds). It leaves out the first batch
    of every epoch.
    """
    check_bounds(smallest, largest)
    rule = _product(step, eps, smallest, largest) if form == "product" else _sum(step, eps, smallest, largest)
    server = inside(sharing(algorithm, "fedhyper_client").server, sending_last)
    return replace(ruled(algorithm, rule, "fedhyper_client"), server=server)


def _sum(step: float, eps: float, smallest: float, largest: float) -> RateRule:
    def init(params: Params) -> State:
        return {"gradient": zeros_like(params), "rate": zero_of(params)}

    def update(probe: Probe, state: State, now: Position) -> tuple[Scalar, State]:
        g, first = probe.gradient, step_number(now) == 0
        if not first and (known := plainly(probe, state)) is not None:
            return known, {"gradient": g, "rate": state["rate"].new_tensor(known)}
        base = zero_of(probe.params) + probe.base
        if first:
            return base, {"gradient": g, "rate": base}
        sign = -torch.sign(inner(last_displacement(probe), g).to(torch.float64))
        change = step * inner(g, state["gradient"]).to(torch.float64) * (1 + eps * sign)
        rate = torch.minimum(torch.maximum(state["rate"] + change, smallest * base), largest * base)
        return rate, {"gradient": g, "rate": rate}

    def plainly(probe: Probe, state: State) -> float | None:
        """The rate as a Python number, which is faster than tensors of one number; None where Python cannot read it."""
        g, base = probe.gradient, probe.base
        along, before = plain_inner(last_displacement(probe), g), plain_inner(g, state["gradient"])
        if along is None or before is None or isinstance(base, Tensor):
            return None
        change = step * before * (1 - eps * ((along > 0) - (along < 0)))
        return min(max(float(state["rate"]) + change, smallest * base), largest * base)

    return RateRule(init, update)


def _product(step: float, eps: float, smallest: float, largest: float) -> RateRule:
    def init(params: Params) -> State:
        zero = zero_of(params)
        # `epoch` is the epoch of the last step, and `inside` whether that step was not the first of its epoch.
        return {"at": dict(params), "step": zeros_like(params), "beta": zero + 1.0, "epoch": zero - 1.0, "inside": zero}

    def update(probe: Probe, state: State, now: Position) -> tuple[Scalar, State]:
        epoch = now.value(lambda here: float(here.epoch)) + 0 * state["epoch"]
        last, moved = last_displacement(probe), subtract(probe.params, state["at"])
        before = add(zeros_like(moved), last) if step_number(now) == 0 else state["step"]
        share = now.value(lambda here: eps / here.cohort)
        agreement = inner(moved, before).to(torch.float64) + share * inner(last, moved).to(torch.float64)
        factor = (1 + step * agreement).clamp(max=GROWTH)
        beta = torch.where(state["inside"] > 0, (state["beta"] * factor).clamp(smallest, largest), state["beta"])
        step_before = {n: torch.where(state["inside"] > 0, d, before[n]) for n, d in moved.items()}
        inside = (epoch == state["epoch"]).to(torch.float64)
        after = {"at": dict(probe.params), "step": step_before, "beta": beta, "epoch": epoch, "inside": inside}
        return probe.base * beta, after

    return RateRule(init, update)


def sending_last(server: Server) -> Server:
    """A server that also sends the last round's mean displacement; zero before there is one."""
    return sending_last_mean(server, "hyper", LAST)


def last_displacement(probe: Probe) -> Params:
    """The last round's mean displacement, of the tensors that the probe's gradient has."""
    extra = probe.received.extra
    return {n: extra[LAST + n] for n in probe.gradient if LAST + n in extra}
