"""FedProx: a proximal term keeps local models near the one received."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.client.objectives import proximal
from fedtempo.schedules import Rate, checked_rate


@named
def fedprox(
    lr: Rate,
    steps: Rate | None = None,
    *,
    mu: Rate = 0.001,
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """FedAvg on f_i(y) + (mu / 2) ||y - x||^2, so g = grad f_i(y) + mu (y - x) (Li et al., 2020).

    Under FedNAR the proximal term is inside the clipped quantity. mu=0 is FedAvg.
    """
    strength = checked_rate(mu, "mu")
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    return replace(
        plain,
        phases=tuple(replace(phase, objective=proximal(strength), rates=(("mu", strength),)) for phase in plain.phases),
    )
