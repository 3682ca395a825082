"""What q-FedAvg and q-FedSGD share: uploads weighted by F_i^q, and a step over the mean of h_i."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedtempo.algorithms.algorithm import Algorithm, Uploads
from fedtempo.algorithms.parts.client_loss import LOSS, WEIGHTS, noting_loss
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry, Hook, StepInfo
from fedtempo.errors import is_number, require
from fedtempo.params import Params, squared_norm, subtract
from fedtempo.schedules import Now, Position
from fedtempo.server.step import descend_scaled
from fedtempo.server.sums import Aggregate, Groups

FIRST_RATE = "_first_rate"
"""The scratch entry that holds the rate of the round's first step."""


def q_fair(plain: Algorithm, q: float, eps: float, static: bool) -> Algorithm:
    """The algorithm with F_i^q u_i in place of the displacements and the step over the mean h_i; see `q_fedavg`."""
    require(is_number(q) and q >= 0, "q", "a number >= 0", q)
    require(is_number(eps) and eps >= 0, "eps", "a number >= 0", eps)

    def upload(received: Received, carry: Carry) -> Groups:
        # At rate 0 nothing moved: u is then 0 / 0, which counts as 0, and so does h. 1 / l would overflow squared.
        rate = carry.scratch[FIRST_RATE]
        slope = torch.where(rate > 0, 1 / torch.where(rate > 0, rate, 1.0), 0.0)
        loss = carry.scratch[LOSS] + eps
        moved = {n: d.to(torch.float64) for n, d in subtract(carry.shared, received.shared).items()}
        trained = {n: slope * d for n, d in moved.items() if received.shared[n].is_floating_point()}
        curved = q * loss ** (q - 1) * squared_norm(trained) if q else torch.zeros_like(loss)
        height = slope * torch.ones_like(loss) if static else curved + slope * loss**q
        delta = {n: (loss**q * slope * d).to(carry.shared[n].dtype) for n, d in moved.items()}
        return {"delta": delta, "height": {"h": height}}

    noting = noting_loss(plain)
    inner = noting.memory.begin

    def begin(received: Received, personal: Params) -> tuple[Params, Params]:
        own, scratch = inner(received, personal)
        return own, {**scratch, FIRST_RATE: torch.zeros_like(scratch[LOSS])}

    return replace(
        noting,
        phases=tuple(phase.hooked(Hook(after=_note_rate, reads_start=False)) for phase in noting.phases),
        server=descend_scaled(plain.server, _over_mean_height),
        memory=replace(noting.memory, begin=begin),
        uploads=Uploads(upload),
        owns=frozenset({WEIGHTS}),
    )


def _note_rate(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
    first = carry.scratch[FIRST_RATE]
    return carry._replace(scratch={**carry.scratch, FIRST_RATE: torch.where(first > 0, first, step.rate + 0 * first)})


def _over_mean_height(aggregate: Aggregate, now: Now) -> float:
    height = float(aggregate.means["height"]["h"])
    return 1 / height if height > 0 else 0.0
