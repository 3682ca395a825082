"""A_i, the work behind a client's displacement, which FedNova divides by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.client.objectives import Received
from fedtempo.client.phase import AfterStep, Carry, StepInfo
from fedtempo.client.program import Upload
from fedtempo.client.rules import base_rate, zero_of
from fedtempo.params import Params, Scalar, scaled
from fedtempo.schedules import Now, Position, Schedule
from fedtempo.server.step import Server, around
from fedtempo.server.sums import Aggregate, Groups

WORK, STEPS, PULSE = "_work", "_steps", "_pulse"
"""Notes of a client: A_i, K_i, and the weight c of the newest gradient in its momentum."""
DIVISOR = "what displacements are divided by"
"""What algorithms own whose displacements are divided by their work."""


def over_work(algorithm: Algorithm, tau: str, who: str) -> Algorithm:
    """The algorithm, whose phases note their work, with Delta_i / A_i sent and tau_eff times their mean stepped on."""
    inner, upload = algorithm.memory.begin, algorithm.uploads.upload

    def begin(received: Received, personal: Params) -> tuple[Params, Params]:
        own, scratch = inner(received, personal)
        return own, {**scratch, **dict.fromkeys((WORK, STEPS, PULSE), zero_of(received.shared))}

    return replace(
        algorithm.claimed(DIVISOR, who),
        server=_normalising(algorithm.server, tau),
        memory=replace(algorithm.memory, begin=begin),
        uploads=replace(algorithm.uploads, upload=_divided(upload)),
    )


def note_work(rate: Schedule, strength: Schedule | None, momentum: float, compat: bool) -> AfterStep:
    """After every step: c <- momentum c + 1, A <- (1 - l b_k mu) A + b_k c, or the code's with `compat`."""

    def after(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
        notes, decay = carry.scratch, _decay(step, rate, now)
        pulse = momentum * notes[PULSE] + 1.0
        shrink = 1.0 if strength is None else 1.0 - step.rate * strength(now)
        work = (notes[WORK] + pulse) * shrink + 1.0 if compat else shrink * notes[WORK] + decay * pulse
        return carry._replace(scratch={**notes, WORK: work, STEPS: notes[STEPS] + 1.0, PULSE: pulse})

    return after


def note_way(rate: Schedule, strength: Schedule | None, momentum: float, nesterov: bool) -> AfterStep:
    """After every step: c <- momentum c + r, A <- A + b_k c, or A + b_k (r + momentum c) with Nesterov; r = 1 - l mu A.

    Steps are linear in the gradients. So the sum of the gradients' weights is the way, in units of -l, of a client
    whose gradient is 1 in every step; the pull mu (y - x) = -l mu A goes through the momentum, as gradients do.
    """

    def after(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
        notes = carry.scratch
        pulled = 1.0 if strength is None else 1.0 - base_rate(rate, now) * strength(now) * notes[WORK]
        pulse = momentum * notes[PULSE] + pulled
        work = notes[WORK] + _decay(step, rate, now) * (pulled + momentum * pulse if nesterov else pulse)
        return carry._replace(scratch={**notes, WORK: work, STEPS: notes[STEPS] + 1.0, PULSE: pulse})

    return after


def _decay(step: StepInfo, rate: Schedule, now: Position) -> Scalar:
    """b_k: the step's rate over that of the round's first step."""
    first = base_rate(rate, now)
    return step.rate / first if not isinstance(first, float) or first else 0.0


def _divided(upload: Upload) -> Upload:
    """The upload with Delta_i / A_i in place of Delta_i, and A_i, K_i; a client without work sends zeros."""

    def divided(received: Received, carry: Carry) -> Groups:
        groups, work = upload(received, carry), carry.scratch[WORK]
        counts = (work > 0).to(work.dtype)
        share = counts / torch.where(work > 0, work, 1.0)
        delta = {n: d.to(received.shared[n].dtype) for n, d in scaled(groups["delta"], share).items()}
        noted = {"norm": work, "steps": carry.scratch[STEPS] * counts, "counts": counts}
        return {**groups, "delta": delta, "work": noted}

    return divided


def _normalising(server: Server, tau: str) -> Server:
    """As `server`, on the mean of Delta_i / A_i times tau_eff, which is the mean A_i ("norm") or K_i ("steps").

    Means are over the clients that have done some work. FedExP's norms are those of tau_eff Delta_i / A_i.
    """

    def before(shared: Params, own: Any, aggregate: Aggregate, now: Now) -> tuple[Aggregate, Any]:
        work = aggregate.means["work"]
        counts = float(work["counts"])
        factor = float(work[tau]) / counts**2 if counts else 0.0
        means = {**aggregate.means, "delta": scaled(aggregate.means["delta"], factor)}
        if "squared_norm" in means:
            means["squared_norm"] = scaled(means["squared_norm"], factor**2 * counts)
        return aggregate._replace(means=means), own

    return around(server, "nova", lambda shared: {}, before)
