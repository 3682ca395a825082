"""FedCM: local steps follow the last round's mean direction as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Memory, Uploads, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.last_mean import last_mean, sending_last_mean
from fedtempo.algorithms.parts.sum_of_rates import TRAVELLED, add_rate, sum_of_rates
from fedtempo.client.objectives import Received, Steady, View
from fedtempo.client.phase import Carry, Hook
from fedtempo.client.rules import zero_of
from fedtempo.errors import require
from fedtempo.params import Params, subtract
from fedtempo.schedules import Now, Rate, checked_rate
from fedtempo.server.sums import Groups

DIRECTION = "_direction/"
"""Leads the names of M among what comes down."""


@named
def fedcm(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    alpha: Rate = 0.1,
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """y <- y - l (alpha grad f_i(y) + (1 - alpha) M); then M <- sum_i w_i (x - y_i) / (l_0 + .. + l_{K-1}).

    Xu et al. (2021). M is zero in the first round, which therefore is FedAvg at rate alpha l. Each client divides by
    the sum of the rates it used, so it sends its mean direction besides its displacement. M does not contain the
    server's rate. alpha=1 is FedAvg.
    """
    share = checked_rate(alpha, "alpha", positive=True)
    require(share.at(Now()) <= 1, "alpha", "at most 1", share.at(Now()))
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    hook = Hook(share=share, correction=Steady(_direction), after=add_rate, reads_start=False)
    phases = tuple(p.hooked(hook) for p in plain.phases)
    return replace(
        plain,
        phases=phases,
        server=sending_last_mean(plain.server, "direction", DIRECTION, group="direction"),
        memory=Memory(begin=lambda received, personal: (personal, {TRAVELLED: zero_of(received.shared)})),
        uploads=Uploads(_upload, compresses=frozenset({"delta", "direction"})),
    )


def _direction(view: View) -> Params:
    return last_mean(view.received, DIRECTION)


def _upload(received: Received, carry: Carry) -> Groups:
    delta = subtract(carry.shared, received.shared)
    travelled = sum_of_rates(carry)
    names = last_mean(received, DIRECTION)
    return {"delta": delta, "direction": {n: (delta[n] / -travelled).to(delta[n].dtype) for n in names}}
