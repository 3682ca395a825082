"""FedDecay: the learning rate decays inside each round and starts afresh in the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Unpack

import torch

from fedtempo.algorithms.algorithm import Algorithm, ClientSettings, Memory, Serving, Weighting, named
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.client.objectives import Received
from fedtempo.client.phase import AfterStep, Carry, StepInfo
from fedtempo.errors import ConfigError, is_number, require
from fedtempo.params import Params
from fedtempo.schedules import Position, Rate, Schedule, checked_rate, linear_in_round, per_step, sequence

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
    """
    factors = _factors(beta, decay, "step" if per == "step" else "epoch")
    if per != "epoch_displacement":
        return fedavg(
            checked_rate(lr, "lr") * factors, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients
        )
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    phases = tuple(replace(p, after=_shorten_epochs(factors)) for p in plain.phases)
    return replace(plain, phases=phases, memory=Memory(begin=_note_start), serving=Serving(after_decays=True))


def _factors(beta: float | None, decay: str | Sequence[float], per: str) -> Schedule:
    if not isinstance(decay, str):
        require(all(is_number(b) and b >= 0 for b in decay), "decay", "a sequence of numbers >= 0", decay)
        return sequence(decay, over=per)
    if beta is None or not 0 <= beta <= 1:
        raise ConfigError(f"beta must be a number in [0, 1]. Got {beta!r}.")
    rule = per_step if decay == "exponential" else linear_in_round
    return rule(1.0, beta, per)


def _note_start(received: Received, personal: Params) -> tuple[Params, Params]:
    return personal, dict(received.shared)


def _shorten_epochs(factors: Schedule) -> AfterStep:
    """After the last step of epoch e: y <- y + (b_e - 1) (y - start), with start where the epoch began."""

    def after(carry: Carry, moved: StepInfo, received: Received, now: Position) -> Carry:
        # Side by side, only some clients may end an epoch here: then `ends` is a tensor of 0 and 1.
        ends = now.value(lambda here: float(here.ends_epoch))
        if isinstance(ends, float) and not ends:
            return carry
        start, shrink = carry.scratch, ends * (factors(now) - 1.0)
        shared = {n: p + shrink * (p - start[n]) for n, p in moved.after.items()}
        here = shared if isinstance(ends, float) else {n: torch.where(ends > 0, p, start[n]) for n, p in shared.items()}
        return carry._replace(shared={**carry.shared, **shared}, scratch={**start, **here})

    return after
