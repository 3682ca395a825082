"""AFL: the weights of the clients are learned against the model, so that the worst client counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Uploads, predict_shared
from fedtempo.algorithms.client_loss import LOSS, WEIGHTS, noting_loss
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.params import Params, add, scaled, subtract
from fedtempo.schedules import Now, Rate, Schedule, checked_rate
from fedtempo.server.step import Server, core_of, serve_shared
from fedtempo.server.sums import Aggregate, Groups

LAMBDA = "lambda"


@named
def afl(
    lr: Rate,
    steps: Rate = 1,
    *,
    weights_lr: Rate,
    average_iterates: bool = True,
    server_lr: Rate = 1.0,
    full_batch: bool = True,
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """x <- x - l sum_i lambda_i grad f_i(x); lambda <- projection on the simplex of lambda + l_lambda F, F_i = f_i(x).

    Mohri, Sivek and Suresh (2019), Algorithm 1, with l_lambda = `weights_lr`; lambda is uniform at first, F is taken
    at the old x. The model that is served is the mean of the iterates x_1 to x_T unless switched off. weights_lr=0 is
    FedSGD. The algorithm asks every client in every round. For a cohort S both sums over all N clients become N / |S|
    times the sums over S, which is right on average. More `steps` than one are local SGD under learned weights.
    """
    plain = fedavg(lr, steps, server_lr=server_lr, **clients)
    plain = replace(plain, phases=tuple(replace(phase, full_batch=full_batch, on="shared") for phase in plain.phases))
    rate = checked_rate(weights_lr, "weights_lr")
    return noting_loss(
        replace(
            plain,
            server=_agnostic(plain.server, rate, average_iterates, (0,)),
            memory=Memory(numbered=True),
            uploads=Uploads(_upload),
            serving=Serving(predict_shared, finetune_on="shared"),
            owns=frozenset({WEIGHTS}),
        )
    )


def _upload(received: Received, carry: Carry) -> Groups:
    weights, number = received.extra[LAMBDA], carry.personal["number"]
    mine = torch.arange(len(weights), device=weights.device) == number
    share = (weights * mine).sum()
    moved = subtract(carry.shared, received.shared)
    delta = {n: (share * d).to(d.dtype) for n, d in moved.items()}
    return {"delta": delta, "losses": {LAMBDA: carry.scratch[LOSS] * mine}}


def on_simplex(point: Tensor) -> Tensor:
    """The nearest point with entries >= 0 that sum to 1: max(z - theta, 0) with the theta that makes the sum 1.

    >>> on_simplex(torch.tensor([0.5, 1.5, -1.0]))
    tensor([0., 1., 0.])
    """
    falling = torch.sort(point, descending=True).values
    excess = (falling.cumsum(0) - 1) / torch.arange(1, len(point) + 1, dtype=point.dtype, device=point.device)
    last = int((falling > excess).sum()) - 1
    return (point - excess[last]).clamp(min=0)


def _agnostic(inner: Server, rate: Schedule, average: bool, clients: tuple[int, ...]) -> Server:
    """A server that keeps lambda and the mean of its models, and sends lambda down.

    lambda has an entry for every client's number; numbers that are not among the training `clients` stay at 0.
    """

    def init(shared: Params) -> Any:
        device = next(iter(shared.values())).device
        weights = torch.zeros(max(clients) + 1, dtype=torch.float64, device=device)
        weights[list(clients)] = 1 / len(clients)
        rounds = torch.zeros((), dtype=torch.float64, device=device)
        return {"optimizer": inner.init(shared), LAMBDA: weights, "mean": dict(shared), "rounds": rounds}

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
        return _agnostic(inner, rate, average, numbers)._replace(fitted=None)

    return inner._replace(
        init=init,
        step=step,
        extra=lambda state: {LAMBDA: state[LAMBDA]},
        model=(lambda shared, state: {**shared, **state["mean"]}) if average else serve_shared,
        rewrap=lambda other: _agnostic(other, rate, average, clients),
        measurements=lambda state: {"largest_weight": float(state[LAMBDA].max())},
        schedules=(*inner.schedules, ("weights_lr", rate)),
        fitted=fitted,
        core=core_of(inner),
    )
