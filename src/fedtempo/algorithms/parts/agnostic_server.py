"""AFL's server, which learns the weights of the clients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedtempo.client.rules import zero_of
from fedtempo.params import Params, add, scaled, subtract
from fedtempo.schedules import Now, Schedule
from fedtempo.server.step import Server, inside, serve_shared
from fedtempo.server.sums import Aggregate

LAMBDA = "lambda"
"""The name of the weights, in the server's state and among what comes down."""


def agnostic(inner: Server, rate: Schedule, average: bool, clients: tuple[int, ...]) -> Server:
    """A server that keeps lambda and the mean of its models, and sends lambda down.

    lambda has an entry for every client's number; numbers that are not among the training `clients` stay at 0.
    """

    def init(shared: Params) -> Any:
        zero = zero_of(shared)
        weights = zero.new_zeros(max(clients) + 1)
        weights[list(clients)] = 1 / len(clients)
        return {"optimizer": inner.init(shared), LAMBDA: weights, "mean": dict(shared), "rounds": zero}

    def step(shared: Params, state: Any, aggregate: Aggregate, now: Now) -> tuple[Params, Any]:
        # Means are over the cohort. Times N they estimate sums over all clients, and equal them where everybody came.
        means = {**aggregate.means, "delta": scaled(aggregate.means["delta"], float(now.clients))}
        shared, optimizer = inner.step(shared, state["optimizer"], aggregate._replace(means=means), now)
        losses = aggregate.means["losses"][LAMBDA].to(torch.float64) * now.clients
        weights, mine = torch.zeros_like(losses), list(clients)
        weights[mine] = on_simplex((state[LAMBDA] + rate.at(now) * losses)[mine])
        rounds = state["rounds"] + 1
        mean = add(state["mean"], subtract(shared, state["mean"]), float(1 / rounds))
        return shared, {"optimizer": optimizer, LAMBDA: weights, "mean": mean, "rounds": rounds}

    def fitted(model: nn.Module, numbers: tuple[int, ...]) -> Server:
        return agnostic(inner, rate, average, numbers)._replace(fitted=None)

    return inner._replace(
        init=init,
        step=step,
        extra=lambda state: {**inner.extra(state["optimizer"]), LAMBDA: state[LAMBDA]},
        model=(lambda shared, state: {**shared, **state["mean"]}) if average else serve_shared,
        rewrap=lambda other: agnostic(inner.rewrap(other), rate, average, clients),
        measurements=lambda state: {
            **inner.measurements(state["optimizer"]),
            "largest_weight": float(state[LAMBDA].max()),
        },
        schedules=(*inner.schedules, ("weights_lr", rate)),
        fitted=fitted,
        within=lambda wrap: agnostic(inside(inner, wrap), rate, average, clients),
    )


def on_simplex(point: Tensor) -> Tensor:
    """The nearest point with entries >= 0 that sum to 1: max(z - theta, 0) with the theta that makes the sum 1.

    >>> on_simplex(torch.tensor([0.5, 1.5, -1.0]))
    tensor([0., 1., 0.])
    """
    falling = torch.sort(point, descending=True).values
    excess = (falling.cumsum(0) - 1) / torch.arange(1, len(point) + 1, dtype=point.dtype, device=point.device)
    last = int((falling > excess).sum()) - 1
    return (point - excess[last]).clamp(min=0)
