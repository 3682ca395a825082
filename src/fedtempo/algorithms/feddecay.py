"""FedDecay: the learning rate decays inside each round and starts afresh in the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Unpack

import torch

from fedtempo.algorithms.algorithm import Algorithm, Memory, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.rate_rules import BLOCKS
from fedtempo.client.objectives import Received
from fedtempo.client.phase import AfterStep, Carry, Hook, Length, StepInfo, length
from fedtempo.errors import ConfigError, is_number, require
from fedtempo.params import Params, combine, partition
from fedtempo.schedules import (
    Now,
    Position,
    Rate,
    Schedule,
    checked_rate,
    linear_in_round,
    per_step,
    sequence,
    whole_number,
)

Granularity = Literal["step", "epoch", "epoch_displacement"]


@named
def feddecay(
    lr: Rate,
    beta: float | None = None,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    decay: Literal["exponential", "linear"] | Sequence[float] = "exponential",
    per: Granularity = "step",
    travel: Literal["decayed", "equal"] = "decayed",
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """FedAvg whose j-th local step has learning rate l b_j (FedDecay, eqs. 4 and 5).

    b_j = beta^j (exponential, 0^0 = 1), max(1 - j (1 - beta), 0) (linear), or any sequence. beta=1 is FedAvg, beta=0
    FedSGD. Small beta favours the initial model, large beta rapid personalization (Table 1).

    The paper decays per update step. The released code decays per epoch: `per="epoch"` scales the rate of a whole
    epoch by b_e, `per="epoch_displacement"` (its default) trains each epoch at the full rate and scales where it led.
    Its linear rule is max(1 - beta j, 0), our linear one with 1 - beta. Fine-tuning never decays.

    At one common rate a small beta also means a short way: the factors of K steps add up to (1 - beta^K) / (1 - beta)
    instead of K. `travel="equal"` divides them by their mean, so that they add up to K for every beta; what is left
    is the order of large and small steps. It is ours, not the papers', who tune the rate of every beta instead. Decay
    per epoch then needs `epochs`.
    """
    require(travel in ("decayed", "equal"), "travel", "'decayed' or 'equal'", travel)
    factors = _factors(beta, decay, "step" if per == "step" else "epoch")
    if travel == "equal":
        rule = "given instead of steps where decay per epoch is to travel equally far"
        require(per == "step" or epochs is not None, "epochs", rule, epochs)
        factors = _equal_travel(factors, None if per == "step" else length(None, epochs))
    if per != "epoch_displacement":
        return fedavg(
            checked_rate(lr, "lr") * factors, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients
        )
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    phases = tuple(p.hooked(Hook(after=_shorten_epochs(factors), epoch_factor=factors)) for p in plain.phases)
    return replace(plain, phases=phases, memory=Memory(begin=_note_start), owns=frozenset({BLOCKS}))


def _factors(beta: float | None, decay: str | Sequence[float], per: str) -> Schedule:
    if not isinstance(decay, str):
        require(all(is_number(b) and b >= 0 for b in decay), "decay", "a sequence of numbers >= 0", decay)
        return sequence(decay, over=per)
    if beta is None or not 0 <= beta <= 1:
        raise ConfigError(f"beta must be a number in [0, 1]. Got {beta!r}.")
    rule = per_step if decay == "exponential" else linear_in_round
    return rule(1.0, beta, per)


def _equal_travel(factors: Schedule, epochs: Length | None) -> Schedule:
    """The factors over their mean in this round: over its steps, or over its epochs where they are given."""

    def rule(now: Now) -> float:
        # A phase of one step is the position that fine-tuning takes its rate from; it has the full rate.
        count = 1 if now.steps == 1 else now.steps if epochs is None else whole_number(epochs.units(now))
        mean = math.fsum(factors.rule(replace(now, step=place, epoch=place)) for place in range(count)) / count
        return factors.rule(now) / mean if mean else 0.0

    return Schedule("equal_travel", {"of": factors}, rule)


def _note_start(received: Received, personal: Params) -> tuple[Params, Params]:
    return personal, combine(received.shared, personal)


def _shorten_epochs(factors: Schedule) -> AfterStep:
    """After the last step of epoch e: y <- y + (b_e - 1) (y - start), with start where the epoch began."""

    def after(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
        # Side by side, only some clients may end an epoch here: then `ends` is a tensor of 0 and 1.
        ends = now.value(lambda here: float(here.ends_epoch))
        if isinstance(ends, float) and not ends:
            return carry
        start, shrink = carry.scratch, ends * (factors(now) - 1.0)
        short = {n: p + shrink * (p - start[n]) for n, p in step.after.items()}
        here = short if isinstance(ends, float) else {n: torch.where(ends > 0, p, start[n]) for n, p in short.items()}
        # A personal head is shortened like the body, as its rate is where that decays.
        own, shared = partition(short, carry.personal)
        return Carry({**carry.shared, **shared}, {**carry.personal, **own}, carry.states, {**start, **here})

    return after
