"""q-FedSGD: clients with a larger loss count more, and each takes one step."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Weighting
from fedtempo.algorithms.fedavg import fedsgd
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.q_fair import q_fair
from fedtempo.schedules import Rate


@named
def q_fedsgd(
    lr: Rate,
    *,
    q: float = 1.0,
    eps: float = 1e-10,
    static_step: bool = False,
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    full_batch: bool = True,
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """As `q_fedavg` with u_i = grad f_i(x), on all rows unless `full_batch=False` (Li et al., 2020, Algorithm 1)."""
    plain = fedsgd(lr, server_lr=server_lr, weighting=weighting, full_batch=full_batch, **clients)
    return q_fair(plain, q, eps, static_step)
