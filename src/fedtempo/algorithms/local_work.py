"""A_i, the work behind a client's displacement, which FedNova divides by."""

from __future__ import annotations

from typing import Any

import torch

from fedtempo.client.objectives import Received
from fedtempo.client.phase import AfterStep, Carry, StepInfo
from fedtempo.client.rules import base_rate, zero_of
from fedtempo.params import Params, scaled, subtract
from fedtempo.schedules import Now, Position, Schedule
from fedtempo.server.step import Server, around
from fedtempo.server.sums import Aggregate, Groups

WORK, STEPS, PULSE = "_work", "_steps", "_pulse"
"""Notes of a client: A_i, K_i, and the weight c of the newest gradient in its momentum."""


def begin_without_work(received: Received, personal: Params) -> tuple[Params, Params]:
    """The start of a round: personal tensors as kept, and no work yet."""
    return personal, dict.fromkeys((WORK, STEPS, PULSE), zero_of(received.shared))


def note_work(rate: Schedule, strength: Schedule | None, momentum: float, compat: bool) -> AfterStep:
    """After every step: c <- momentum c + 1, A <- (1 - l b_k mu) A + b_k c, or the code's with `compat`."""

    def after(carry: Carry, moved: StepInfo, received: Received, now: Position) -> Carry:
        notes, first = carry.scratch, base_rate(rate, now)
        pulse = momentum * notes[PULSE] + 1.0
        shrink = 1.0 if strength is None else 1.0 - moved.rate * strength(now)
        decay = moved.rate / first if not isinstance(first, float) or first else 0.0
        work = (notes[WORK] + pulse) * shrink + 1.0 if compat else shrink * notes[WORK] + decay * pulse
        return carry._replace(scratch={**notes, WORK: work, STEPS: notes[STEPS] + 1.0, PULSE: pulse})

    return after


def upload_over_work(received: Received, carry: Carry) -> Groups:
    """Delta_i / A_i, and A_i, K_i; a client without work sends zeros."""
    work = carry.scratch[WORK]
    counts = (work > 0).to(work.dtype)
    share = counts / torch.where(work > 0, work, 1.0)
    delta = scaled(subtract(carry.shared, received.shared), share)
    like = {n: d.to(received.shared[n].dtype) for n, d in delta.items()}
    return {"delta": like, "work": {"norm": work, "steps": carry.scratch[STEPS] * counts, "counts": counts}}


def normalising(server: Server, tau: str) -> Server:
    """As `server`, on the mean of Delta_i / A_i times tau_eff, which is the mean A_i ("norm") or K_i ("steps")."""

    def before(shared: Params, own: Any, aggregate: Aggregate, now: Now) -> tuple[Aggregate, Any]:
        work = aggregate.means["work"]
        counts = float(work["counts"])
        factor = float(work[tau]) / counts**2 if counts else 0.0
        means = {**aggregate.means, "delta": scaled(aggregate.means["delta"], factor)}
        return aggregate._replace(means=means), own

    return around(server, "nova", lambda shared: {}, before)
