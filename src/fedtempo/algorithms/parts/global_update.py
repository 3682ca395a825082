"""D, the last round's mean displacement, which FedAdamW's and FedMuon's clients follow in every step."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedtempo.algorithms.parts.last_mean import last_mean, sending_last_mean
from fedtempo.client.objectives import Received
from fedtempo.client.phase import AfterStep, Carry, StepInfo
from fedtempo.params import add
from fedtempo.schedules import Now, Position, Schedule
from fedtempo.server.step import Server

DRIVE = "_drive/"
"""Leads the names of the last mean displacement among what comes down."""


def driven(alpha: float, rate: Schedule, rescaled: bool) -> AfterStep:
    """After every step: y <- y + b_k (alpha / K) D, times l_t / l_{t-1} where `rescaled`."""

    def after(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
        last = {n: d for n, d in last_mean(received, DRIVE).items() if n in step.after}
        share = now.value(lambda here: alpha / here.steps * _inside(rate, here, rescaled))
        if not step.before and isinstance(share, float) and last:
            # The step has written over its start, so these weights are the client's alone.
            torch._foreach_add_([carry.shared[n] for n in last], list(last.values()), alpha=share)
            return carry
        shared = add({n: carry.shared[n] for n in last}, last, share)
        return carry._replace(shared={**carry.shared, **shared})

    return after


def _inside(rate: Schedule, here: Now, rescaled: bool) -> float:
    """l_{t,k} / l_{t,0}, and with `rescaled` times l_{t,0} / l_{t-1,0}."""
    if rate.is_constant:
        return float(rate.at(here) != 0)
    first = rate.at(replace(here, round=max(here.round - rescaled, 0), step=0, epoch=0))
    return rate.at(here) / first if first else 0.0


def driving(server: Server) -> Server:
    """A server that also sends down the last mean displacement."""
    return sending_last_mean(server, "drive", DRIVE)
