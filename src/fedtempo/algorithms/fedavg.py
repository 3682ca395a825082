"""FedAvg, FedSGD, Reptile and local training."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Uploads, Weighting, full_copy, predict_personal
from fedtempo.algorithms.named import ClientSettings, PhaseSettings, named, phase_settings
from fedtempo.client.phase import Phase, length
from fedtempo.client.transforms import Transform, sgd
from fedtempo.client.transforms import momentum as heavy_ball
from fedtempo.errors import is_count, require
from fedtempo.params import statistics
from fedtempo.schedules import Rate, checked_rate
from fedtempo.server.step import descend


def momentum_transform(decay: float, clients: ClientSettings | PhaseSettings) -> Transform:
    """The `momentum=` of an algorithm; an optimizer brings its own."""
    require(not (decay and "optimizer" in clients), "momentum", "left to the optimizer where one is given", decay)
    return heavy_ball(decay)


@named
def fedavg(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    momentum: float = 0.0,
    average_buffers: bool = True,
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """K local SGD steps, then the mean: y <- y - l grad f_i(y); x <- x + eta_g sum_i w_i (y_i - x).

    McMahan et al. (2017). With `weighting="samples"` and a server rate this is the scheme the decaying-K paper
    calls FedSGD (Algorithms 1 and 2). Weights are uniform by default, as in the FedDecay and FedNAR papers;
    the decaying-K paper weighs by samples. `momentum` is the clients', from zero in every round. Statistics such as
    BatchNorm's are averaged too; with `average_buffers=False` they stay with their clients, and a new client starts
    from the first ones.

    >>> fedavg(lr=0.1, steps=5)
    fedavg(lr=0.1, steps=5)
    """
    direction = momentum_transform(momentum, clients)
    phase = Phase(length(steps, epochs), checked_rate(lr, "lr"), direction=direction, **phase_settings(clients))
    server = descend(sgd(checked_rate(server_lr, "server_lr")))
    plain = Algorithm((phase,), server, weighting)
    return plain if average_buffers else replace(plain, personal=statistics)


@named
def fedsgd(
    lr: Rate,
    *,
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    full_batch: bool = False,
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """One local gradient step: x <- x - l sum_i w_i grad f_i(x). FedAvg with K = 1 (McMahan et al.).

    The step sees one batch of the experiment's size; `full_batch=True` takes all local data, as McMahan et al. do.
    """
    algorithm = fedavg(lr, 1, server_lr=server_lr, weighting=weighting, **clients)
    return replace(algorithm, phases=tuple(replace(p, full_batch=full_batch) for p in algorithm.phases))


@named
def reptile(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """x <- x + eps mean_i (y_i - x): Nichol et al. (2018). `server_lr=1` is FedAvg with uniform weights."""
    return fedavg(lr, steps, epochs=epochs, server_lr=server_lr, **clients)


@named
def local_only(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    newcomer_rounds: int = 10,
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """Every client trains a model of its own from the common start and shares nothing: the honest baseline.

    A new client trains alone too, for `newcomer_rounds` times the local work of one round.
    """
    require(is_count(newcomer_rounds), "newcomer_rounds", "an int >= 1", newcomer_rounds)
    phase = Phase(length(steps, epochs), checked_rate(lr, "lr"), on="personal", **phase_settings(clients))
    alone = replace(phase, length=replace(phase.length, times=newcomer_rounds))
    return Algorithm(
        (phase,),
        memory=Memory(initial_state=full_copy),
        uploads=Uploads(nothing=True),
        serving=Serving(predict_personal, newcomer_phases=(alone,), finetune_on="personal"),
    )
