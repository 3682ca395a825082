"""FedHyper: the server's or the clients' rate follows inner products of displacements. Plug-ins for any algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import named
from fedtempo.algorithms.rate_rules import ruled, sharing
from fedtempo.client.rules import Probe, RateRule, State
from fedtempo.errors import ConfigError, require
from fedtempo.params import Params, Scalar, add, inner, scaled, zeros_like
from fedtempo.schedules import Now, Position
from fedtempo.server.step import Server, around, inside
from fedtempo.server.sums import Aggregate

FACTOR = "_hyper/factor"
"""The name under which the clients' rate, as a factor of its first value, comes down."""


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
        return around(server, "hyper", first, before, measurements=lambda own: {"server_lr": float(own["alpha"])})

    # Inside: D_t is what the algorithm makes of the mean upload, such as FedNova's normalised displacement.
    wrapped = inside(sharing(algorithm, "fedhyper_global").server, wrap)
    return replace(algorithm.claimed("the server's rate", "fedhyper_global"), server=wrapped)


@named
def fedhyper_server(
    algorithm: Algorithm,
    *,
    step: float = 1.0,
    smallest: float = 0.1,
    largest: float = 10.0,
    relative: bool = False,
) -> Algorithm:
    """The next round's client rate is clip(l_t + step <D_t, D_{t-1}>, smallest l_0, largest l_0), from round 1 on.

    Wang et al. (2024), FedHyper-SL; l_0 is the algorithm's `lr`, which must be one for all rounds and clients.
    `relative=True` is the formula of the authors' code, l_0 clip(1 + step sum <D_t, D_{t-1}>, smallest, largest); the
    code itself never uses it.
    """
    check_bounds(smallest, largest)
    first_rate = _constant_rate(algorithm)

    def first(shared: Params) -> Any:
        one = torch.ones((), dtype=torch.float64)
        return {"factor": one, "sum": one, "last": zeros_like(shared)}

    def before(shared: Params, own: Any, aggregate: Aggregate, now: Now) -> tuple[Aggregate, Any]:
        delta = aggregate.means["delta"]
        agreement = step * inner(delta, own["last"]).to(torch.float64)
        total = own["sum"] + agreement
        absolute = own["factor"] + agreement / first_rate if first_rate else own["factor"]
        factor = (total if relative else absolute).clamp(smallest, largest)
        return aggregate, {"factor": factor, "sum": total, "last": delta}

    def update(probe: Probe, state: State, now: Position) -> tuple[Scalar, State]:
        return probe.base * probe.received.extra.get(FACTOR, torch.ones(())), state

    def wrap(server: Server) -> Server:
        return around(
            server,
            "hyper",
            first,
            before,
            sends=lambda own: {FACTOR: own["factor"]},
            measurements=lambda own: {"client_lr": first_rate * float(own["factor"])},
        )

    server = inside(sharing(algorithm, "fedhyper_server").server, wrap)
    return replace(ruled(algorithm, RateRule(lambda params: {}, update), "fedhyper_server"), server=server)


def check_bounds(smallest: float, largest: float) -> None:
    """The least and the most that a rate may become, as factors of its first value."""
    require(0 < smallest <= 1, "smallest", "a number in (0, 1]", smallest)
    require(largest >= 1, "largest", "a number >= 1", largest)


def _constant_rate(algorithm: Algorithm) -> float:
    """The rate of the first phase on the shared model; an error where it is not one for all rounds and clients."""
    lr = next((p.lr for p in algorithm.phases if p.on != "personal"), algorithm.phases[0].lr)
    first = lr.at(Now())
    try:
        same = all(lr.at(place) == first for place in _elsewhere())
    except LookupError:  # a table that ends has an entry for each round or client
        same = False
    if not same:
        raise ConfigError(f"fedhyper_server must be around one rate for all rounds and clients. Got lr={lr!r}.")
    return first


def _elsewhere() -> Iterator[Now]:
    """First steps of other rounds, at other times and of other clients; a change in a late round lasts."""
    yield from (Now(round=t) for t in range(1, 100))
    yield from (Now(round=2**power) for power in range(7, 31))
    yield from (Now(loss_ratio=0.5, plateaus=1), Now(time=3600.0), Now(last_loss=0.5))
    yield from (Now(client=number, samples=2 + number, total_samples=100) for number in range(10))
