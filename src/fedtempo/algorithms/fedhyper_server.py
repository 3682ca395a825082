"""FedHyper from the server: the clients' rate follows inner products of displacements. A plug-in for any algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import named
from fedtempo.algorithms.parts.rate_rules import check_bounds, ruled, sharing
from fedtempo.client.rules import Probe, RateRule, State
from fedtempo.errors import ConfigError
from fedtempo.params import Params, Scalar, inner, zeros_like
from fedtempo.schedules import Now, Position
from fedtempo.server.step import Server, around, inside
from fedtempo.server.sums import Aggregate

FACTOR = "_hyper/factor"
"""The name under which the clients' rate, as a factor of its first value, comes down."""


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

    Wang et al. (2024), FedHyper-SL; l_0 is the algorithm's `lr`, which must be one for all rounds and clients. Users
    are fine-tuned at the newest rate, unless the evaluation sets one. `relative=True` is the formula of the authors'
    code, l_0 clip(1 + step sum <D_t, D_{t-1}>, smallest, largest); the code itself never uses it.
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
    rule = RateRule(lambda params: {}, update, from_server=True)
    return replace(ruled(algorithm, rule, "fedhyper_server"), server=server)


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
