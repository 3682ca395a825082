"""Any algorithm under another server optimizer."""

from __future__ import annotations

from dataclasses import replace

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import named
from fedtempo.algorithms.parts.rate_rules import sharing
from fedtempo.client.optimizers import Optimizer
from fedtempo.client.transforms import Transform, chain, sgd
from fedtempo.errors import require
from fedtempo.schedules import Rate, checked_rate
from fedtempo.server.step import descend


@named
def with_server(algorithm: Algorithm, optimizer: Transform | Optimizer, server_lr: Rate = 1.0) -> Algorithm:
    """Any algorithm whose server descends, with the step x <- x - eta_g optimizer(-mean Delta).

    What the server does besides, such as keeping SCAFFOLD's control variate, stays. Of `ft.optimizers.adam()` and its
    like the server takes the transform; it always keeps its state.
    """
    sharing(algorithm, "with_server")
    of_clients = isinstance(optimizer, Optimizer) and optimizer.for_model is not None
    require(not of_clients, "optimizer", "one that needs no model, such as ft.optimizers.adam()", optimizer)
    transform = optimizer.transform if isinstance(optimizer, Optimizer) else optimizer
    step = descend(chain(transform, sgd(checked_rate(server_lr, "server_lr"))))
    return replace(algorithm, server=algorithm.server.rewrap(step))
