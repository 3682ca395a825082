"""FedNova, FedDyn and MOON as a user would write them, each in under twenty lines; docs/how-to shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import torch
import torch.nn.functional as F

import fedtempo as ft
from fedtempo.algorithms import fedavg, full_copy, predict_shared
from fedtempo.client.objectives import Value, proximal
from fedtempo.params import add, combine, scaled, select, subtract, zeros_like
from fedtempo.schedules import Rate


@ft.named
def fednova(lr: Rate, epochs: Rate = 1) -> ft.Algorithm:
    """x <- x + tau_eff mean_i (Delta_i / tau_i), tau_eff = mean_i tau_i, weighted by samples (Wang et al., 2020)."""

    def begin(received, personal):
        return personal, {"tau": torch.zeros((), dtype=torch.float64)}

    def count(carry, moved, received, now):
        return carry._replace(scratch={"tau": carry.scratch["tau"] + 1})

    def upload(received, carry):
        tau = carry.scratch["tau"]
        return {"delta": scaled(subtract(carry.shared, received.shared), 1 / tau), "steps": {"tau": tau}}

    plain = fedavg(lr, epochs=epochs, weighting="samples")
    phases = tuple(p.hooked(ft.Hook(after=count, reads_start=False)) for p in plain.phases)
    server = ft.descend_scaled(plain.server, lambda aggregate, now: float(aggregate.means["steps"]["tau"]))
    return replace(plain, phases=phases, server=server, memory=ft.Memory(begin=begin), uploads=ft.Uploads(upload))


@ft.named
def feddyn(lr: Rate, steps: Rate, alpha: float = 0.1) -> ft.Algorithm:
    """min f_i(y) - <h_i, y> + (alpha / 2) ||y - x||^2, h_i <- h_i - alpha (y_i - x) (Acar et al., 2021)."""

    def step(shared, h, aggregate, now):
        delta = aggregate.means["delta"]
        h = add(h, delta, -alpha * aggregate.clients / now.clients)
        return add(add(shared, delta), h, -1 / alpha), h

    memory = ft.Memory(
        initial_state=lambda shared, trained: zeros_like(select(shared, trained)),
        final_state=lambda received, carry: add(carry.personal, subtract(carry.shared, received.shared), -alpha),
    )
    history = ft.Hook(correction=lambda view: scaled(view.personal, -1.0))
    plain, server = fedavg(lr, steps), ft.Server(init=zeros_like, step=step)
    phases = tuple(replace(p, objective=proximal(alpha), on="shared").hooked(history) for p in plain.phases)
    serving = ft.Serving(predict_shared, finetune_on="shared")
    return replace(plain, phases=phases, server=server, memory=memory, serving=serving)


@ft.named
def moon(lr: Rate, steps: Rate, mu: float = 1.0, temperature: float = 0.5) -> ft.Algorithm:
    """The data loss, and mu times a term that pulls features to the received model's (Li et al., 2021)."""

    def objective(loss, params, batch, view, now):
        value, buffers = loss(params, batch)
        models = (params, view.received.shared, combine(view.received.shared, view.personal))
        mine, received, previous = (view.network.features(model, batch, train=True) for model in models)
        near, far = (F.cosine_similarity(mine, other) / temperature for other in (received, previous))
        return Value(value + mu * F.softplus(far - near).mean(), value, buffers)

    plain = fedavg(lr, steps)
    return replace(
        plain,
        phases=tuple(replace(p, objective=objective, on="shared") for p in plain.phases),
        memory=ft.Memory(initial_state=full_copy, final_state=lambda received, carry: carry.shared),
        serving=ft.Serving(predict_shared, finetune_on="shared", finetune_like=plain.phases[0]),
    )


@ft.named
def halved(lr: Rate, steps: Rate, **clients: Unpack[ft.ClientSettings]) -> ft.Algorithm:
    """FedAvg with half steps at the server, which takes what every algorithm takes: optimizer, trains, accumulate."""
    return fedavg(lr, steps, server_lr=0.5, **clients)
