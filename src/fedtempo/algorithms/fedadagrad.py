"""FedAdagrad: FedAvg's clients under a server with Adagrad."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.with_server import with_server
from fedtempo.client.transforms import scale_by_adagrad
from fedtempo.schedules import Rate


@named
def fedadagrad(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    server_lr: Rate = 0.1,
    b1: float = 0.0,
    eps: float = 1e-3,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """As FedAdam with v <- v + D^2 and, by default, no momentum (Reddi et al., Algorithm 2)."""
    return with_server(
        fedavg(lr, steps, epochs=epochs, weighting=weighting, **clients), scale_by_adagrad(b1, eps), server_lr
    )
