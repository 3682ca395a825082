"""q-FedAvg: clients with a larger loss count more."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.q_fair import q_fair
from fedtempo.schedules import Rate


@named
def q_fedavg(
    lr: Rate,
    steps: Rate | None = None,
    *,
    q: float = 1.0,
    eps: float = 1e-10,
    static_step: bool = False,
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """x <- x - sum_S F_i^q u_i / sum_S h_i, u_i = (x - y_i) / l, h_i = q F_i^(q-1) ||u_i||^2 + F_i^q / l.

    Li et al. (2020), Algorithm 2. F_i = f_i(x) + `eps` at the received model, over all rows; the authors' code has that
    eps. l is the rate of the round's first step. `static_step=True` is the code's h_i = 1 / l. q=0 is FedAvg. That code
    draws clients by samples (`cohort.by_samples`) and then counts them equally. F_i^q u_i must be finite in the model's
    type: in float32 a loss of 10 allows q up to about 35.
    """
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    return q_fair(plain, q, eps, static_step)
