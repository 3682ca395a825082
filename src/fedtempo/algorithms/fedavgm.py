"""FedAvgM: FedAvg's clients under a server with momentum."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.with_server import with_server
from fedtempo.client.transforms import momentum as heavy_ball
from fedtempo.schedules import Rate


@named
def fedavgm(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    momentum: float = 0.9,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """u <- momentum u + mean Delta; x <- x + eta_g u, no dampening, no Nesterov (Hsu et al., 2019)."""
    return with_server(
        fedavg(lr, steps, epochs=epochs, weighting=weighting, **clients), heavy_ball(momentum), server_lr
    )
