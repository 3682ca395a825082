"""Server decay: the shared model's weights decay once a round. A plug-in for any algorithm."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import TrafficSettings, named
from fedtempo.algorithms.parts.rate_rules import sharing
from fedtempo.params import Params, add
from fedtempo.schedules import Now, Rate, Schedule, checked_rate
from fedtempo.server.step import Server, fitting, inside
from fedtempo.server.sums import Aggregate


@named
def server_decay(algorithm: Algorithm, *, decay: Rate, **traffic: Unpack[TrafficSettings]) -> Algorithm:
    """The server's step and then x <- x - `decay` x_old: weight decay of the shared model, once a round.

    Li et al. (2023) tune it in place of the clients' weight decay; FedNAR, Lemma 1, has it as mu_g.
    """
    rate = checked_rate(decay, "decay")
    # Inside: what a server makes of its models, such as AFL's mean of them, is of the decayed ones.
    return replace(
        algorithm, server=inside(sharing(algorithm, "server_decay").server, lambda server: _decaying(server, rate))
    )


def _decaying(server: Server, rate: Schedule) -> Server:
    def step(shared: Params, state: object, aggregate: Aggregate, now: Now) -> tuple[Params, object]:
        moved, state = server.step(shared, state, aggregate, now)
        trained = {n: t for n, t in moved.items() if n in aggregate.means["delta"]}
        return {**moved, **add(trained, shared, -rate.at(now))}, state

    return server._replace(
        step=step,
        rewrap=lambda other: _decaying(server.rewrap(other), rate),
        schedules=(*server.schedules, ("server decay", rate)),
        fitted=fitting(server, lambda inner: _decaying(inner, rate)),
        within=lambda wrap: _decaying(inside(server, wrap), rate),
    )
