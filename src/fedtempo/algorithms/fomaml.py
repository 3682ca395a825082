"""FOMAML: only the last gradient of the local trajectory counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Memory, Uploads, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.last_step import begin_with_zeros, note_direction, note_update, upload_note
from fedtempo.algorithms.parts.rate_rules import AVERAGED
from fedtempo.client.phase import Hook
from fedtempo.schedules import Rate, checked_rate


@named
def fomaml(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    server_lr: Rate | None = None,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """x <- x - eta_out mean_i grad f_i(y_{K-1}) after K - 1 inner steps (FedDecay, eq. 6; Nichol et al., 2018).

    Without `server_lr` the outer rate is the inner one, as FedDecay's eqs. 4 and 6 imply: clients send the last
    update y_K - y_{K-1}. K=1 is FedSGD. First order: no second derivatives.

    The FOMAML rows of the FedDecay tables were made by code that never ran FOMAML; do not aim for them.
    """
    if server_lr is not None:
        checked_rate(server_lr, "server_lr")
    plain = fedavg(
        lr, steps, epochs=epochs, server_lr=1.0 if server_lr is None else server_lr, weighting=weighting, **clients
    )
    note = note_update if server_lr is None else note_direction
    phases = tuple(phase.hooked(Hook(after=note)) for phase in plain.phases)
    return replace(
        plain,
        phases=phases,
        memory=Memory(begin=begin_with_zeros),
        uploads=Uploads(upload_note),
        owns=frozenset({AVERAGED}),
    )
