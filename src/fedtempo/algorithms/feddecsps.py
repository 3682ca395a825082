"""FedDecSPS: Polyak's step size on every client, never rising. A plug-in for any algorithm."""

from __future__ import annotations

from typing import Literal

import torch

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import named
from fedtempo.algorithms.parts.polyak import of_data_alone, polyak_ratio
from fedtempo.algorithms.parts.rate_rules import ruled
from fedtempo.client.rules import Probe, RateRule, State, zero_of
from fedtempo.errors import require
from fedtempo.params import Params, Scalar, plain_squared_norm
from fedtempo.schedules import Position


@named
def feddecsps(
    algorithm: Algorithm,
    *,
    c: float = 0.5,
    lower: float = 0.0,
    counts: Literal["run", "own", "round"] = "run",
    with_proximal: bool = True,
) -> Algorithm:
    """eta_n = r_n / (c sqrt(n + 1)), r_n = min(r_{n-1}, (f(y_n) - lower) / |g_n|^2), r_{-1} = c gamma_b.

    Mukherjee et al. (2024), where n counts local steps since the start of training. A client keeps its r.
    `counts="run"` counts as if the client had taken part in every round, `"own"` the steps it took; with `"round"` n
    and r start afresh in every round. gamma_b is the algorithm's `lr`. A loss below `lower` gives 0 and leaves r as it
    is. `with_proximal` as for `fedsps`.
    """
    require(c > 0, "c", "a number > 0", c)

    def init(params: Params) -> State:
        # -1 stands for "not set": what a client keeps must be finite.
        return {"smallest": zero_of(params) - 1.0, "count": zero_of(params)}

    def update(probe: Probe, state: State, now: Position) -> tuple[Scalar, State]:
        probe = probe if with_proximal else of_data_alone(probe)
        square = plain_squared_norm(probe.gradient)
        if square is not None and isinstance(probe.base, (int, float)):
            gap, last = probe.loss.item() - lower, state["smallest"].item()
            least = c * probe.base if last < 0 else last
            least = min(least, gap / square) if square > 0 and gap >= 0 else least
            count = state["count"] if counts == "own" else now.value(lambda here: float(here.earlier + here.step))
            eta = least / (c * (float(count) + 1.0) ** 0.5) if gap >= 0 else 0.0
            return eta, {"smallest": state["smallest"].new_tensor(least), "count": state["count"] + 1.0}
        ratio, steep, above = polyak_ratio(probe, lower, 1.0, 0.0)
        before = torch.where(state["smallest"] < 0, c * probe.base, state["smallest"])
        smallest = torch.where(steep & above, torch.minimum(before, ratio), before)
        taken = state["count"] if counts == "own" else now.value(lambda here: float(here.earlier + here.step))
        eta = smallest / (c * (taken + 1.0) ** 0.5)
        return torch.where(above, eta, 0.0), {"smallest": smallest, "count": state["count"] + 1.0}

    rule = RateRule(init, update, keeps_state=counts != "round", needs_data=not with_proximal)
    return ruled(algorithm, rule, "feddecsps", counts_earlier=counts == "run")
