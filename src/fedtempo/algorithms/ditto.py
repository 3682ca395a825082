"""Ditto: every client has a whole model of its own, kept near the shared one."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Weighting, full_copy, predict_personal
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named, phase_settings
from fedtempo.client.objectives import proximal
from fedtempo.client.phase import Phase, length
from fedtempo.schedules import Rate, checked_rate


@named
def ditto(
    lr: Rate,
    steps: Rate | None = None,
    *,
    lam: Rate = 1.0,
    personal_lr: Rate | None = None,
    personal_steps: Rate | None = None,
    epochs: Rate | None = None,
    personal_epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """v_i <- v_i - eta_p (grad f_i(v_i) + lam (v_i - x_t)) beside a FedAvg update of x (Li et al., 2021).

    x_t is the model *received* this round. v_i starts at the first shared model; a new client starts at the trained one
    and takes one round of its proximal steps. lam=0 is local training.
    """
    strength = checked_rate(lam, "lam")
    own_length = length(
        steps if personal_steps is None and personal_epochs is None else personal_steps,
        epochs if personal_steps is None and personal_epochs is None else personal_epochs,
    )
    rate = checked_rate(lr if personal_lr is None else personal_lr, "personal_lr")
    own = Phase(
        own_length,
        rate,
        objective=proximal(strength),
        rates=(("lam", strength),),
        on="personal",
        **phase_settings(clients),
    )
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    return replace(
        plain,
        phases=(own, *(replace(phase, on="shared") for phase in plain.phases)),
        memory=Memory(initial_state=full_copy),
        serving=Serving(predict_personal, newcomer_phases=(own,), finetune_on="personal"),
    )
