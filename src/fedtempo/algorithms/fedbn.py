"""FedBN: normalisation layers stay at the client."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from torch.nn.modules.batchnorm import _BatchNorm

from fedtempo.algorithms.algorithm import Algorithm, ClientSettings, Weighting, named
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.params import of_type
from fedtempo.schedules import Rate


@named
def fedbn(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """FedAvg on everything but BatchNorm: its weights, biases and statistics are personal (Li et al., 2021).

    Layers are found by type, not by name as in the authors' code. A new client starts from fresh BatchNorm tensors and
    gets its own statistics by fine-tuning. Without BatchNorm this is FedAvg.
    """
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    return replace(plain, personal=of_type(_BatchNorm, optional=True))
