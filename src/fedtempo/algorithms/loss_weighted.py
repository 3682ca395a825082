"""Weights that follow the clients' losses. A plug-in for any algorithm whose server descends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import TrafficSettings, named
from fedtempo.algorithms.parts.client_loss import LOSS, WEIGHTS, check_weigh, noting_loss
from fedtempo.algorithms.parts.rate_rules import HISTORY, sharing
from fedtempo.client.objectives import Received
from fedtempo.client.optimizer_state import GROUP
from fedtempo.client.phase import Carry
from fedtempo.errors import ConfigError, is_number, require
from fedtempo.params import scaled
from fedtempo.schedules import Now
from fedtempo.server.step import Server, on_changed
from fedtempo.server.sums import Aggregate, Groups

PHI = "loss_weights"
"""The group of an upload that holds phi(F_i)."""


@named
def loss_weighted(
    algorithm: Algorithm,
    *,
    power: float = 0.0,
    tilt: float = 0.0,
    weigh: Callable[[Tensor], Tensor] | None = None,
    **traffic: Unpack[TrafficSettings],
) -> Algorithm:
    """`algorithm` with a client's weight times phi(F_i): every mean becomes sum w_i phi_i u_i / sum w_i phi_i.

    F_i is the client's loss at the received model, over all its rows. phi(F) = F^`power` exp(`tilt` F), or any function
    `weigh` of F: power=q has the directions of q-FFL (Li et al., 2020), normalised; tilt=t is the tilted loss (Li et
    al., 2021). Groups in which every client counts once, such as SCAFFOLD's variates, stay as they are; statistics of
    layers and averaged states of optimizers keep the weights w_i.
    """
    for name, value in (("power", power), ("tilt", tilt)):
        require(is_number(value), name, "a finite number", value)
    given = weigh is None or (power == 0 and tilt == 0)
    require(given, "weigh", "left out where power or tilt is given", weigh)
    if weigh is not None:
        check_weigh(weigh)
    if algorithm.components is not None:
        raise ConfigError(f"loss_weighted must be around an algorithm with one shared model. Got {algorithm.name}.")
    if algorithm.uploads.sends_norm:
        raise ConfigError(f"loss_weighted must be around uploads without norms. Got {algorithm.name}.")
    free = sharing(algorithm, "loss_weighted").leaving(HISTORY, "loss_weighted").claimed(WEIGHTS, "loss_weighted")
    rules, noting = algorithm.uploads, noting_loss(free)

    def phi(loss: Tensor) -> Tensor:
        return loss**power * torch.exp(tilt * loss) if weigh is None else weigh(loss).to(torch.float64)

    def upload(received: Received, carry: Carry) -> Groups:
        factor = phi(carry.scratch[LOSS])
        groups = {
            group: tensors if group in rules.unweighted else {n: (factor * t).to(t.dtype) for n, t in tensors.items()}
            for group, tensors in rules.upload(received, carry).items()
        }
        return {**groups, PHI: {"phi": factor}}

    server = _normalised(algorithm.server, rules.unweighted | {PHI, "buffers", GROUP})
    return replace(noting, server=server, uploads=replace(rules, upload=upload))


def _normalised(server: Server, others: frozenset[str]) -> Server:
    """As `server`, with every mean but those of the `others` divided by the mean of phi."""

    def change(aggregate: Aggregate, now: Now) -> Aggregate:
        total = float(aggregate.means[PHI]["phi"])
        # If all weights are 0 no client counts, and nothing moves.
        factor = 1 / total if total > 0 else 0.0
        means = {g: tensors if g in others else scaled(tensors, factor) for g, tensors in aggregate.means.items()}
        return aggregate._replace(means=means)

    return on_changed(server, change)
