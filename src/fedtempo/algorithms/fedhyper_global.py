"""FedHyper at the server: its rate follows inner products of displacements. A plug-in for any algorithm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import named
from fedtempo.algorithms.parts.rate_rules import check_bounds, sharing
from fedtempo.params import Params, add, inner, scaled, zeros_like
from fedtempo.schedules import Now
from fedtempo.server.step import Server, around, inside
from fedtempo.server.sums import Aggregate


@named
def fedhyper_global(
    algorithm: Algorithm, *, step: float = 1.0, smallest: float = 1 / 3, largest: float = 3.0, look_back: float = 0.0
) -> Algorithm:
    """x <- x + alpha_t D_t, alpha_t = clip(alpha_{t-1} + step <D_t, D_{t-1}>, smallest, largest), alpha_0 = 1.

    Wang et al. (2024), FedHyper-G; D_t is the mean displacement. The first round is the algorithm's own. Another server
    optimizer steps on alpha_t D_t. The authors' code recommends a momentum, `look_back=0.9`: with L_0 = D_0 it is
    alpha_t from <D_t, L_{t-1}>, x <- x + D_t + (alpha_t - 1) L_t, L_t = D_t + look_back L_{t-1}, and it bounds alpha by
    `smallest=0.8, largest=5`.
    """
    check_bounds(smallest, largest)

    def first(shared: Params) -> Any:
        return {"alpha": torch.ones((), dtype=torch.float64), "last": zeros_like(shared)}

    def before(shared: Params, own: Any, aggregate: Aggregate, now: Now) -> tuple[Aggregate, Any]:
        delta = aggregate.means["delta"]
        agreement = inner(delta, own["last"]).to(torch.float64)
        alpha = (own["alpha"] + step * agreement).clamp(smallest, largest)
        last = add(delta, own["last"], look_back) if look_back else delta
        moved = add(delta, last, float(alpha) - 1.0) if look_back else scaled(delta, float(alpha))
        means = {**aggregate.means, "delta": moved}
        return aggregate._replace(means=means), {"alpha": alpha, "last": last}

    def wrap(server: Server) -> Server:
        wrapped = around(server, "hyper", first, before, measurements=lambda own: {"server_lr": float(own["alpha"])})
        # Another wrapper's part comes before the factor: FedHyper's rate of the clients is of D_t itself.
        return wrapped._replace(rewrap=lambda other: wrap(server.rewrap(other)), within=None)

    # Inside: D_t is what the algorithm makes of the mean upload, such as FedNova's normalised displacement.
    wrapped = inside(sharing(algorithm, "fedhyper_global").server, wrap)
    return replace(algorithm.claimed("the server's rate", "fedhyper_global"), server=wrapped)
