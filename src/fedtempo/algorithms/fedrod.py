"""FedRoD: a generic head for every class alike, and a personal head beside it."""

from __future__ import annotations

from typing import Literal, Unpack

import torch
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Weighting
from fedtempo.algorithms.named import ClientSettings, named, phase_settings, restricted
from fedtempo.algorithms.parts.class_counts import COUNTS, count_classes
from fedtempo.client.network import Network
from fedtempo.client.objectives import Loss, Objective, Value, View
from fedtempo.client.phase import Beside, Hook, Phase, length
from fedtempo.client.transforms import sgd
from fedtempo.params import Params, Selector, combine, select, submodule, zeros_like
from fedtempo.schedules import Position, Rate, Schedule, checked_rate
from fedtempo.server.step import descend
from fedtempo.tasks import Batch


@named
def fedrod(
    lr: Rate,
    steps: Rate | None = None,
    *,
    gamma: Rate = 1.0,
    personal_head: Literal["zero", "copy"] = "zero",
    head: Selector = submodule("head"),
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "samples",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """The shared model by cross-entropy of z + gamma log n_c; a personal head P_i on z + P_i(features), z constant.

    Chen and Chao (2022), with the linear personal head. z are the shared model's outputs, n_c the client's rows of
    class c among all its training rows. Both gradients are taken at the same point. P_i starts at zero, so that a
    client begins with the shared model; `personal_head="copy"` starts it as a copy of the shared head. A user is
    served z + P_i, a new client trains P_i alone. gamma=0 makes the shared model FedAvg's. The paper's hypernetwork is
    left out.
    """
    rate, count, strength = checked_rate(lr, "lr"), length(steps, epochs), checked_rate(gamma, "gamma")
    own = Phase(count, rate, objective=_beside_generic, on="personal", **restricted(clients, head))
    generic = Phase(
        count,
        rate,
        objective=_balanced(strength),
        rates=(("gamma", strength),),
        on="shared",
        beside=Beside(own),
        hooks=(Hook(enter=count_classes),),
        **phase_settings(clients),
    )
    first = zeros_like if personal_head == "zero" else dict
    return Algorithm(
        (generic,),
        server=descend(sgd(checked_rate(server_lr, "server_lr"))),
        weighting=weighting,
        memory=Memory(lambda shared, names: dict(first(select(shared, names))), of=head),
        serving=Serving(_predict, newcomer_phases=(own,), finetune_on="personal"),
    )


def _balanced(gamma: Schedule) -> Objective:
    """Cross-entropy of z + gamma log n_c. A class without rows is left out of the softmax: its probability is 0."""

    def objective(loss: Loss, params: Params, batch: Batch, view: View, now: Position) -> Value:
        counts, strength = view.scratch[COUNTS], gamma(now)
        # gamma = 0 has no prior at all. A large negative number instead of -inf keeps 0 * inf out of the loss.
        prior = torch.where(counts > 0, torch.log(counts.clamp(min=1)), torch.finfo(counts.dtype).min / 4)
        value, buffers = loss(params, batch, shift=prior * strength)
        return Value(value, value, buffers)

    return objective


def _beside_generic(loss: Loss, params: Params, batch: Batch, view: View, now: Position) -> Value:
    value, _ = loss(params, batch, shift=view.network.forward(view.shared, batch, train=True))
    return Value(value, value, {})


def _predict(network: Network, shared: Params, personal: Params, batch: Batch, train: bool = False) -> Tensor:
    return network.forward(shared, batch, train) + network.forward(combine(shared, personal), batch, train)
