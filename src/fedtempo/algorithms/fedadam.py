"""FedAdam: FedAvg's clients under a server with Adam."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.with_server import with_server
from fedtempo.client.transforms import Correction, scale_by_adam, scale_by_fednar_adam
from fedtempo.errors import is_number, require
from fedtempo.schedules import Rate


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
