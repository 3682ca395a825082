"""AFL: the weights of the clients are learned against the model, so that the worst client counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import torch

from fedtempo.algorithms.algorithm import Algorithm, Memory, Uploads
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.agnostic_server import LAMBDA, agnostic
from fedtempo.algorithms.parts.client_loss import LOSS, WEIGHTS, noting_loss
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.params import subtract
from fedtempo.schedules import Rate, checked_rate
from fedtempo.server.sums import Groups


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
    plain = replace(plain, phases=tuple(replace(phase, full_batch=full_batch) for phase in plain.phases))
    rate = checked_rate(weights_lr, "weights_lr")
    return noting_loss(
        replace(
            plain,
            server=agnostic(plain.server, rate, average_iterates, (0,)),
            memory=Memory(numbered=True),
            uploads=Uploads(_upload),
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
