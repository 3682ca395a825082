"""DiLoCo: AdamW on the clients, Nesterov momentum at the server."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.with_server import with_server
from fedtempo.client.clipping import clip_gradient
from fedtempo.client.optimizers import Between, adamw
from fedtempo.client.transforms import momentum as heavy_ball
from fedtempo.schedules import Rate


@named
def diloco(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    server_lr: Rate = 0.7,
    momentum: float = 0.9,
    b1: float = 0.9,
    b2: float = 0.95,
    weight_decay: Rate = 0.1,
    max_norm: Rate | None = None,
    state: Between = "keep",
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """K AdamW steps; G = x - sum_i w_i y_i, u <- momentum u + G, x <- x - eta_g (G + momentum u).

    Douillard et al. (2023). A client keeps its AdamW moments from round to round (`state`). The first outer move is
    eta_g (1 + momentum) times the mean displacement. OpenDiLoCo clips gradients at `max_norm=1.0`. The paper weighs
    shards that are not alike by their size (`weighting="samples"`). Another `optimizer` replaces AdamW.
    """
    settings: ClientSettings = {"optimizer": adamw(b1, b2, weight_decay=weight_decay, state=state), **clients}
    plain = fedavg(lr, steps, epochs=epochs, weighting=weighting, **settings)
    clipped = plain.with_direction(lambda direction: clip_gradient(max_norm))
    return with_server(clipped, heavy_ball(momentum, nesterov=True), server_lr)
