"""FedBABU: only the body is trained; the head stays as it is until a user is served."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from torch import nn

from fedtempo.algorithms.algorithm import Algorithm, FirstModel, Serving, Weighting, first_as_drawn
from fedtempo.algorithms.fedavg import momentum_transform
from fedtempo.algorithms.named import ClientSettings, named, restricted
from fedtempo.algorithms.parts.polar_factor import nearest_orthogonal
from fedtempo.client.phase import Phase, length
from fedtempo.errors import ConfigError
from fedtempo.params import Params, Selector, everything, submodule
from fedtempo.schedules import Rate, checked_rate


@named
def fedbabu(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    head: Selector = submodule("head"),
    orthogonal: bool = False,
    momentum: float = 0.0,
    weighting: Weighting = "samples",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """The body is trained and averaged; the head keeps its first value for everybody (Oh et al., 2022).

    No personal state: a client, new or not, fine-tunes a copy of body and head when it is evaluated. The authors' code
    has momentum 0.9 and uniform weights, the paper weighs by samples. `orthogonal=True` replaces the head's matrices
    W = U S V' by U V' before the first round, as PFLEGO's code does.
    """
    direction = momentum_transform(momentum, clients)
    phase = Phase(length(steps, epochs), checked_rate(lr, "lr"), direction=direction, **restricted(clients, ~head))
    tuned = replace(phase, trains=clients.get("trains", everything))
    first = _frozen(head, _orthogonal(head) if orthogonal else first_as_drawn)
    return Algorithm((phase,), weighting=weighting, serving=Serving(finetune_like=tuned), first_model=first)


def _frozen(head: Selector, then: FirstModel) -> FirstModel:
    """`then` on a model that has the head: where none is matched, nothing would be frozen and nobody would notice."""

    def first(model: nn.Module, tensors: Params) -> Params:
        if not head.optional and not head.names(model):
            raise ConfigError(f"head must match some tensors. Got {head!r}, which matches none.")
        return then(model, tensors)

    return first


def _orthogonal(head: Selector) -> FirstModel:
    def first(model: nn.Module, tensors: Params) -> Params:
        names = head.names(model) & {n for n, t in tensors.items() if t.dim() == 2}
        return {**tensors, **{n: nearest_orthogonal(tensors[n]) for n in names}}

    return first
