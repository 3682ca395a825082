"""MOON: features are pulled to the received model's and pushed away from those of the client's earlier models."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Weighting, predict_shared
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.client.objectives import Loss, Objective, Received, Value, View, mean_of_rows, of_this_client
from fedtempo.client.phase import Carry
from fedtempo.errors import is_count, require
from fedtempo.params import Params
from fedtempo.schedules import Position, Rate, Schedule, checked_rate
from fedtempo.tasks import Batch

SLOT = "previous/{}/"
"""Leads the names of an earlier model of the client; the newest is in slot 0."""


@named
def moon(
    lr: Rate,
    steps: Rate | None = None,
    *,
    mu: Rate = 1.0,
    temperature: float = 0.5,
    buffer: int = 1,
    first_visit: Literal["received", "initial"] = "received",
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "samples",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """FedAvg on f_i + mu mean_s l(s), l = -log(e^{a} / (e^{a} + sum_p e^{b_p})) (Li, He and Song, 2021, eqs. 3 and 4).

    a and b_p are the cosines of the features (the body's output) with those of the received model and of the client's
    models at the end of its last `buffer` visits, over `temperature`. Both are constants, taken in evaluation mode. A
    client that was never visited has no earlier model; `first_visit="initial"` gives it the run's first one, as the
    authors' code does. That code adds a projection head, momentum 0.9 and weight decay 1e-5. mu=0 is FedAvg. A new
    client is served the shared model, fine-tuned without contrast. A step costs a forward pass of the body for the
    received model and one for each earlier model.
    """
    require(is_count(buffer), "buffer", "an int >= 1", buffer)
    require(temperature > 0, "temperature", "a number > 0", temperature)
    strength = checked_rate(mu, "mu")
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    contrast = {"objective": _contrast(strength, temperature, buffer), "rates": (("mu", strength),), "on": "shared"}
    held = int(first_visit == "initial")

    def begin(received: Received, personal: Params) -> tuple[Params, Params]:
        return personal, {"filled": (personal["visits"] + held).clamp(max=buffer)}

    def initial(shared: Params, trained: frozenset[str]) -> Params:
        slots = {SLOT.format(p) + n: t for p in range(buffer) for n, t in shared.items()}
        return {**slots, "visits": torch.zeros((), dtype=torch.int64, device=next(iter(shared.values())).device)}

    def final(received: Received, carry: Carry) -> Params:
        newest = {n: t for n, t in carry.shared.items() if SLOT.format(0) + n in carry.personal}
        older = {
            SLOT.format(p) + n: carry.personal[SLOT.format(p - 1) + n] if p else t
            for p in range(buffer)
            for n, t in newest.items()
        }
        return {**older, "visits": carry.personal["visits"] + 1}

    return replace(
        plain,
        phases=tuple(replace(phase, **contrast) for phase in plain.phases),  # type: ignore[arg-type]
        memory=Memory(initial, begin, final),
        serving=Serving(predict_shared, finetune_on="shared", finetune_like=plain.phases[0]),
    )


def _contrast(mu: Schedule, temperature: float, buffer: int) -> Objective:
    def objective(loss: Loss, params: Params, batch: Batch, view: View, now: Position) -> Value:
        network, fixed = view.network, view.received.shared
        # The features are computed once, for the loss and for the contrast, where the loss needs nothing else.
        changed = {**params, **{n: params[n].clone() for n in network.buffers if n in params}}
        mine = network.features_updating(changed, batch, train=True)
        apart = network.head_of_body
        value, buffers = loss(params, {**batch, "_features": mine} if apart else batch)
        buffers = {n: changed[n] if apart and n.startswith("body.") else b for n, b in buffers.items()}

        def cosine(model: Params) -> Tensor:
            other = network.features(of_this_client(model, mine, network), batch).detach()
            return F.cosine_similarity(mine.flatten(1), other.flatten(1)) / temperature

        earlier = [{n: view.personal.get(SLOT.format(p) + n, t) for n, t in fixed.items()} for p in range(buffer)]
        near, far = cosine(fixed), torch.stack([cosine(model) for model in earlier], dim=-1)
        empty = torch.arange(buffer, device=far.device) >= view.scratch["filled"]
        all_of_them = torch.cat([near.unsqueeze(-1), far.masked_fill(empty, -torch.inf)], dim=-1)
        contrast = mean_of_rows(torch.logsumexp(all_of_them, dim=-1) - near, batch)
        return Value(value + mu(now) * contrast, value, buffers)

    return objective
