"""Adaptive local aggregation (ALA): how a FedALA client learns the weights W that mix x into its own model."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtempo.client.objectives import Loss, Received, Value, View, of_this_client
from fedtempo.client.phase import AfterStep, Carry, StepInfo, Until
from fedtempo.params import Params
from fedtempo.schedules import Position
from fedtempo.tasks import Batch

MIX, LOSS, LOSSES, PASSES, VISITED = "mix/", "_ala_loss", "_ala_losses", "_ala_passes", "_ala_visited"
WINDOW = 10
"""Passes whose losses decide whether the first mixing has come to rest."""


def start_of(received: Params, personal: Params, weights: Params) -> Params:
    """t: the received model, with theta + (x - theta) W in the tensors that have weights."""
    mixed = {n: personal[n] + (x - personal[n]) * weights[MIX + n] for n, x in received.items() if MIX + n in weights}
    return {**received, **mixed}


def mixed_loss(loss: Loss, params: Params, batch: Batch, view: View, now: Position) -> Value:
    """The loss at t, as a function of W."""
    own = next(w for n, w in params.items() if n.startswith(MIX))
    received = of_this_client(view.received.shared, own, view.network)
    value, _ = loss(start_of(received, view.personal, params), batch)
    # Kept beside the personal tensors, where `mix` finds it.
    return Value(value, value, {LOSS: value})


def mix(most: int) -> AfterStep:
    """Clip W, start the local steps at the new t, and note the loss of the last batch of every pass."""

    def after(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
        weights = {n: w.clamp(0.0, 1.0) for n, w in step.after.items()}
        personal = {**carry.personal, **weights}
        ends = now.value(lambda here: float((here.step + 1) % max(here.steps // most, 1) == 0))
        later = torch.cat([carry.scratch[LOSSES][1:], carry.personal[LOSS].reshape(1)])
        losses = carry.scratch[LOSSES] + ends * (later - carry.scratch[LOSSES])
        scratch = {**carry.scratch, LOSSES: losses, PASSES: carry.scratch[PASSES] + ends}
        shared = {**carry.shared, **start_of(received.shared, personal, weights)}
        return carry._replace(shared=shared, personal=personal, scratch=scratch)

    return after


def mixed_enough(threshold: float) -> Until:
    """Whether W has learnt enough: one pass, or at a client's first visit until the losses come to rest."""

    def until(received: Received, carry: Carry) -> Tensor:
        passes, visited = carry.scratch[PASSES], carry.personal[VISITED] > 0
        rest = (passes > WINDOW) & (carry.scratch[LOSSES].std(correction=0) < threshold)
        return _same(received, carry) | torch.where(visited, passes >= 1, rest)

    return until


def _same(received: Received, carry: Carry) -> Tensor:
    """Whether the client's own model is the received one, so that there is nothing to mix."""
    names = [n.removeprefix(MIX) for n in carry.personal if n.startswith(MIX)]
    return torch.stack([(received.shared[n] == carry.personal[n]).all() for n in names]).all()
