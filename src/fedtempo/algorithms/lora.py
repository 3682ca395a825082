"""FedSA-LoRA and FFA-LoRA: which of the two factors of `peft`'s adapters is shared."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Serving, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.fedper import fedper
from fedtempo.algorithms.named import ClientSettings, named, restricted
from fedtempo.params import Selector, matching, nothing
from fedtempo.schedules import Rate

A, B = matching("*.lora_A.*"), matching("*.lora_B.*")


@named
def fedsa_lora(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    head: Selector = nothing,
    server_lr: Rate = 1.0,
    weighting: Weighting = "samples",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """A and B of every adapter are trained; A is averaged, B_i stays with its client, from B = 0 (Guo et al., 2025).

    `head` names what else is personal: the authors keep the task head on GLUE and share it with language models. A new
    client starts from B = 0, the pretrained model, and trains what is personal. In the authors' released settings one
    module serves all clients, so that a client starts from the B of the one before; here every client has its own.
    """
    own = B | head
    plain = fedper(lr, steps, epochs=epochs, head=own, server_lr=server_lr, weighting=weighting, **clients)
    newcomer = tuple(replace(phase, trains=restricted(clients, own)["trains"]) for phase in plain.phases)
    return replace(plain, serving=Serving(newcomer_phases=newcomer))


@named
def ffa_lora(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "samples",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """A keeps its first value, which is everybody's; B is trained and averaged: mean(B_i) A = mean(B_i A).

    Sun et al. (2024). What else the model trains, such as its classifier, is averaged too.
    """
    fixed = restricted(clients, ~A)
    return fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **fixed)
