"""FedALA: a client learns, entry by entry, how much of the received model goes into its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Weighting, predict_personal
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, PhaseSettings, gradient_only, named
from fedtempo.client.objectives import Loss, Received, Value, View, of_this_client
from fedtempo.client.phase import AfterStep, Carry, Phase, StepInfo, Until, length
from fedtempo.errors import is_count, is_number, require
from fedtempo.params import Params, Selector, submodule
from fedtempo.schedules import Position, Rate, checked_rate
from fedtempo.tasks import Batch

MIX, LOSS, LOSSES, PASSES, VISITED = "mix/", "_ala_loss", "_ala_losses", "_ala_passes", "_ala_visited"
WINDOW = 10
"""Passes whose losses decide whether the first mixing has come to rest."""


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
    theta_i = x it is skipped. A pass takes the first batches of a shuffled epoch; the authors' code takes a random
    block of neighbouring rows, counts `top` in tensors from the end (2: a linear head), mixes at absent clients too,
    and drops short batches. mix_lr=0 is FedAvg. A user is served theta_i, a new client x, fine-tuned.
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
        objective=_mixed_loss,
        on="personal",
        own=MIX,
        after=_mix(most_passes),
        until=_mixed_enough(threshold),
        **exact,
    )
    local = tuple(replace(phase, on="shared") for phase in plain.phases)
    return replace(
        plain,
        phases=(mixing, *local),
        memory=Memory(_first_own, _begin, _keep, of=top),
        serving=Serving(predict_personal, finetune_on="personal", finetune_like=plain.phases[0]),
    )


def _first_own(shared: Params, names: frozenset[str]) -> Params:
    some = next(p for p in shared.values() if p.is_floating_point())
    weights = {MIX + n: torch.ones_like(t) for n, t in shared.items() if n in names and t.is_floating_point()}
    return {**shared, **weights, LOSS: torch.zeros_like(some.sum()), VISITED: torch.zeros_like(some.sum())}


def _begin(received: Received, personal: Params) -> tuple[Params, Params]:
    zero = torch.zeros_like(personal[LOSS])
    return personal, {LOSSES: torch.stack([zero] * WINDOW), PASSES: zero}


def start_of(received: Params, personal: Params, weights: Params) -> Params:
    """t: the received model, with theta + (x - theta) W in the tensors that have weights."""
    mixed = {n: personal[n] + (x - personal[n]) * weights[MIX + n] for n, x in received.items() if MIX + n in weights}
    return {**received, **mixed}


def _mixed_loss(loss: Loss, params: Params, batch: Batch, view: View, now: Position) -> Value:
    own = next(w for n, w in params.items() if n.startswith(MIX))
    received = of_this_client(view.received.shared, own, view.network)
    value, _ = loss(start_of(received, view.personal, params), batch)
    # Kept beside the personal tensors, where `_mix` finds it.
    return Value(value, value, {LOSS: value})


def _mix(most: int) -> AfterStep:
    """Clip W, start the local steps at the new t, and note the loss of the last batch of every pass."""

    def after(carry: Carry, moved: StepInfo, received: Received, now: Position) -> Carry:
        weights = {n: w.clamp(0.0, 1.0) for n, w in moved.after.items()}
        personal = {**carry.personal, **weights}
        ends = now.value(lambda here: float((here.step + 1) % max(here.steps // most, 1) == 0))
        later = torch.cat([carry.scratch[LOSSES][1:], carry.personal[LOSS].reshape(1)])
        losses = carry.scratch[LOSSES] + ends * (later - carry.scratch[LOSSES])
        scratch = {**carry.scratch, LOSSES: losses, PASSES: carry.scratch[PASSES] + ends}
        shared = {**carry.shared, **start_of(received.shared, personal, weights)}
        return carry._replace(shared=shared, personal=personal, scratch=scratch)

    return after


def _mixed_enough(threshold: float) -> Until:
    def until(received: Received, carry: Carry) -> Tensor:
        passes, visited = carry.scratch[PASSES], carry.personal[VISITED] > 0
        rest = (passes > WINDOW) & (carry.scratch[LOSSES].std(correction=0) < threshold)
        return _same(received, carry) | torch.where(visited, passes >= 1, rest)

    return until


def _same(received: Received, carry: Carry) -> Tensor:
    """Whether the client's own model is the received one, so that there is nothing to mix."""
    names = [n.removeprefix(MIX) for n in carry.personal if n.startswith(MIX)]
    return torch.stack([(received.shared[n] == carry.personal[n]).all() for n in names]).all()


def _keep(received: Received, carry: Carry) -> Params:
    own = {n: carry.shared[n] for n in carry.personal if n in carry.shared}
    mixed = (carry.scratch[PASSES] > 0).to(carry.personal[VISITED].dtype)
    return {**carry.personal, **own, VISITED: torch.maximum(carry.personal[VISITED], mixed)}
