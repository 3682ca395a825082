"""FedALA: a client learns, entry by entry, how much of the received model goes into its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import torch

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Weighting, predict_personal
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, PhaseSettings, gradient_only, named
from fedtempo.algorithms.parts.adaptive_local_aggregation import (
    LOSS,
    LOSSES,
    MIX,
    PASSES,
    VISITED,
    WINDOW,
    mix,
    mixed_enough,
    mixed_loss,
)
from fedtempo.algorithms.parts.rate_rules import AVERAGED
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry, Hook, Phase, length
from fedtempo.errors import is_count, is_number, require
from fedtempo.params import Params, Selector, submodule
from fedtempo.schedules import Rate, checked_rate


@named
def fedala(
    lr: Rate,
    steps: Rate | None = None,
    *,
    mix_lr: Rate = 1.0,
    share: float = 0.8,
    top: Selector = submodule("head"),
    threshold: float = 0.1,
    most_passes: int = 100,
    mix_absent: bool = False,
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "samples",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """FedAvg that starts from t = theta_i + (x - theta_i) W_i in the `top` tensors and from x in the others.

    Zhang et al. (2023), Algorithm 1: W <- clip_[0,1](W - eta grad_t f_i(t) (x - theta_i)) on batches of a `share` of
    the client's rows, then local steps from t on all tensors. theta_i is the client's model after its last round, eta
    is `mix_lr`. The first time, W learns until the losses of the last ten passes have a standard deviation below
    `threshold`, which takes eleven passes at least (and `most_passes` at most); later it makes one pass. Where
    theta_i = x it is skipped. A pass takes the next batches of shuffled epochs, as many as a `share` of an epoch has,
    rounded up; the authors' code takes one random block of neighbouring rows in all passes of a round, counts `top` in
    tensors from the end (2: a linear head) and drops short batches. In that code the clients that do not train mix as
    well, theta_i <- t, so that their models drift to x: `mix_absent=True`; the model then goes down to everybody, and
    costs still count the cohort. mix_lr=0 is FedAvg. A user is served theta_i, a new client x, fine-tuned.
    """
    require(is_number(share) and 0 < share <= 1, "share", "a number in (0, 1]", share)
    require(is_number(threshold) and threshold >= 0, "threshold", "a number >= 0", threshold)
    require(is_count(most_passes), "most_passes", "an int >= 1", most_passes)
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    # A top that matches nothing is always a mistake: there would be nothing to mix.
    exact: PhaseSettings = {**gradient_only(clients), "trains": replace(top, optional=False)}
    mixing = Phase(
        replace(length(epochs=most_passes), share=share),
        checked_rate(mix_lr, "mix_lr"),
        objective=mixed_loss,
        on="personal",
        own=MIX,
        hooks=(Hook(after=mix(most_passes), until=mixed_enough(threshold)),),
        **exact,
    )
    local = tuple(replace(phase, on="shared") for phase in plain.phases)
    return replace(
        plain,
        phases=(mixing, *local),
        memory=Memory(_first_own, _begin, _keep, of=top, absent_train="own" if mix_absent else False),
        serving=Serving(predict_personal, finetune_on="personal", finetune_like=plain.phases[0]),
        owns=frozenset({AVERAGED}),
    )


def _first_own(shared: Params, names: frozenset[str]) -> Params:
    some = next(p for p in shared.values() if p.is_floating_point())
    weights = {MIX + n: torch.ones_like(t) for n, t in shared.items() if n in names and t.is_floating_point()}
    return {**shared, **weights, LOSS: torch.zeros_like(some.sum()), VISITED: torch.zeros_like(some.sum())}


def _begin(received: Received, personal: Params) -> tuple[Params, Params]:
    zero = torch.zeros_like(personal[LOSS])
    return personal, {LOSSES: torch.stack([zero] * WINDOW), PASSES: zero}


def _keep(received: Received, carry: Carry) -> Params:
    own = {n: carry.shared[n] for n in carry.personal if n in carry.shared}
    mixed = (carry.scratch[PASSES] > 0).to(carry.personal[VISITED].dtype)
    return {**carry.personal, **own, VISITED: torch.maximum(carry.personal[VISITED], mixed)}
