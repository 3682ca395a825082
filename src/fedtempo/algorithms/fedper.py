"""FedPer: a shared body, and a personal head trained together with it."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Serving, Weighting
from fedtempo.algorithms.fedavg import momentum_transform
from fedtempo.algorithms.named import ClientSettings, named, phase_settings
from fedtempo.client.phase import Phase, length
from fedtempo.client.transforms import sgd
from fedtempo.params import Selector, submodule
from fedtempo.schedules import Rate, checked_rate
from fedtempo.server.step import descend


@named
def fedper(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    head: Selector = submodule("head"),
    server_lr: Rate = 1.0,
    momentum: float = 0.0,
    weighting: Weighting = "samples",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """K joint steps on (theta, W_i); theta is averaged, W_i stays (Arivazhagan et al., 2019).

    `head=nothing` is FedAvg. A new client gets a fresh head and fine-tunes body and head for one round's steps.
    """
    direction = momentum_transform(momentum, clients)
    phase = Phase(length(steps, epochs), checked_rate(lr, "lr"), direction=direction, **phase_settings(clients))
    server = descend(sgd(checked_rate(server_lr, "server_lr")))
    return Algorithm((phase,), server, weighting, personal=head, serving=Serving(newcomer_phases=(phase,)))
