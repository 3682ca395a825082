"""Clients that stop when their own gradient or loss says so. A plug-in for any algorithm."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import named
from fedtempo.algorithms.parts.rate_rules import BLOCKS
from fedtempo.client.phase import Hook
from fedtempo.client.rules import Probe, State, StopRule, zero_of
from fedtempo.errors import is_count, require
from fedtempo.params import Params, Scalar, norm, plain_norm
from fedtempo.schedules import Position, step_number


@named
def stop_early(
    algorithm: Algorithm,
    *,
    gradient: float | None = None,
    relative: float | None = None,
    patience: int | None = None,
    minimum: int = 1,
) -> Algorithm:
    """A client takes no further step of a phase once one of the given rules holds; its steps are at most those planned.

    `gradient`: |g_k| <= gradient. `relative`: |g_k| <= relative |g_0|, FedProx's gamma-inexact solution (Li et al.,
    2020, definition 1). `patience`: the batch's loss has not been below its best for this many steps in a row. The
    first `minimum` steps are always taken. g_k is the objective's gradient on the batch of step k, with its proximal
    term. A round reports how many clients stopped. Costs are those of the planned steps. Fine-tuning does not stop
    early.

    >>> from fedtempo.algorithms import fedprox
    >>> stop_early(fedprox(lr=0.1, steps=50, mu=0.1), relative=0.1).name
    'stop_early'
    """
    for name, value in (("gradient", gradient), ("relative", relative)):
        require(value is None or value >= 0, name, "a number >= 0 or None", value)
    require(patience is None or is_count(patience), "patience", "an int >= 1 or None", patience)
    require(is_count(minimum), "minimum", "an int >= 1", minimum)
    given = [rule for rule in (gradient, relative, patience) if rule is not None]
    require(bool(given), "gradient, relative or patience", "given", None)

    def init(params: Params) -> State:
        zero = zero_of(params)
        return {"first": zero, "best": zero, "fruitless": zero}

    def update(probe: Probe, state: State, now: Position) -> tuple[Tensor | bool, State]:
        step, may_stop = step_number(now), step_number(now) >= minimum
        stops: Tensor | bool = False
        if gradient is not None or relative is not None:
            length = _length(probe.gradient)
            state = {**state, "first": state["first"] + length} if step == 0 else state
            stops = stops | (length <= gradient) if may_stop and gradient is not None else stops
            stops = stops | (length <= relative * state["first"]) if may_stop and relative is not None else stops
        if patience is not None:
            loss = probe.loss.to(torch.float64)
            better = torch.ones_like(loss, dtype=torch.bool) if step == 0 else loss < state["best"]
            fruitless = torch.where(better, 0.0, state["fruitless"] + 1.0)
            state = {**state, "best": torch.where(better, loss, state["best"]), "fruitless": fruitless}
            stops = stops | (fruitless >= patience) if may_stop else stops
        return stops, state

    rule = StopRule(init, update)
    # A client that stopped inside an epoch or a block would leave out what is done at its end.
    free = algorithm.leaving(BLOCKS, "stop_early").claimed("when clients stop", "stop_early")
    return free.with_phases(lambda p: p.hooked(Hook(stop_rule=rule)))


def _length(gradient: Params) -> Scalar:
    """The gradient's norm, as a number where Python can read it."""
    plain = plain_norm(gradient)
    return norm(gradient).to(torch.float64) if plain is None else plain
