"""LG-FedAvg: the body is personal, the head is shared."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Serving, Weighting
from fedtempo.algorithms.fedper import fedper
from fedtempo.algorithms.named import ClientSettings, named, restricted
from fedtempo.params import Selector, submodule
from fedtempo.schedules import Rate


@named
def lg_fedavg(
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
    """K joint steps on (body_i, head); the head is averaged, body_i stays: FedPer the other way round.

    Liang et al. (2020). The authors' code weighs clients equally, has momentum 0.5 and starts from a model that FedAvg
    trained: give its tensors as `init`, and every body starts there. Its CIFAR network shares the convolutions and
    keeps the linear layers, the reverse of the paper. A new client has a body as it was first drawn, and takes a
    round's steps on it while the head is frozen.
    """
    plain = fedper(
        lr,
        steps,
        epochs=epochs,
        head=~head,
        server_lr=server_lr,
        momentum=momentum,
        weighting=weighting,
        **clients,
    )
    body = tuple(replace(phase, trains=restricted(clients, ~head)["trains"]) for phase in plain.phases)
    return replace(plain, serving=Serving(newcomer_phases=body))
