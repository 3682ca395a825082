"""FedAvgM, FedAdam, FedYogi, FedAdagrad: FedAvg's clients under another server optimizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.rate_rules import sharing
from fedtempo.client.optimizers import Optimizer
from fedtempo.client.transforms import (
    Correction,
    Transform,
    chain,
    scale_by_adagrad,
    scale_by_adam,
    scale_by_fednar_adam,
    scale_by_yogi,
    sgd,
)
from fedtempo.client.transforms import (
    momentum as heavy_ball,
)
from fedtempo.errors import is_number, require
from fedtempo.schedules import Rate, checked_rate
from fedtempo.server.step import descend


@named
def with_server(algorithm: Algorithm, optimizer: Transform | Optimizer, server_lr: Rate = 1.0) -> Algorithm:
    """Any algorithm whose server descends, with the step x <- x - eta_g optimizer(-mean Delta).

    What the server does besides, such as keeping SCAFFOLD's control variate, stays. Of `ft.optimizers.adam()` and its
    like the server takes the transform; it always keeps its state.
    """
    sharing(algorithm, "with_server")
    transform = optimizer.transform if isinstance(optimizer, Optimizer) else optimizer
    step = descend(chain(transform, sgd(checked_rate(server_lr, "server_lr"))))
    return replace(algorithm, server=algorithm.server.rewrap(step))


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


@named
def fedadam(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    server_lr: Rate = 0.1,
    b1: float = 0.9,
    b2: float | None = None,
    eps: Rate | None = None,
    initial_v: float | None = None,
    bias_correction: bool = False,
    fednar_compat: bool = False,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """m <- b1 m + (1 - b1) D, v <- b2 v + (1 - b2) D^2, x <- x + eta_g m / (sqrt(v) + eps), D = mean Delta.

    Default: Reddi et al. (2021), Algorithm 2: b2=.99, eps=1e-3 (their tau), v from eps^2, no bias correction.
    `bias_correction=True`: the decaying-K paper's Algorithm 3, b2=.999, eps=1e-8, times sqrt(1 - b2^t) / (1 - b1^t).
    `initial_v` is the first v of either; Reddi et al. ask for at least eps^2. `fednar_compat=True`: as the FedNAR code
    has it (see `scale_by_fednar_adam`), to reproduce its tables only.
    """
    holds = initial_v is None or (initial_v >= 0 and not fednar_compat)
    require(holds, "initial_v", "a number >= 0, left out with fednar_compat", initial_v)
    plain = fedavg(lr, steps, epochs=epochs, weighting=weighting, **clients)
    if fednar_compat:
        return with_server(
            plain, scale_by_fednar_adam(0.01 if eps is None else eps, b1, 0.99 if b2 is None else b2), server_lr
        )
    offset = (1e-8 if bias_correction else 1e-3) if eps is None else eps
    decay = (0.999 if bias_correction else 0.99) if b2 is None else b2
    require(is_number(offset), "eps", "a number (a schedule only with fednar_compat)", offset)
    corrects: Correction = "rate" if bias_correction else "nothing"
    adam = scale_by_adam(b1, decay, offset, corrects, initial_v)  # type: ignore[arg-type]
    return with_server(plain, adam, server_lr)


@named
def fedyogi(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    server_lr: Rate = 0.1,
    b1: float = 0.9,
    b2: float = 0.99,
    eps: float = 1e-3,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """As FedAdam with v <- v - (1 - b2) D^2 sign(v - D^2) (Reddi et al., Algorithm 2)."""
    return with_server(
        fedavg(lr, steps, epochs=epochs, weighting=weighting, **clients), scale_by_yogi(b1, b2, eps), server_lr
    )


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
