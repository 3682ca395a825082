"""FedEM: every client is its own mixture of a few shared models."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Weighting
from fedtempo.algorithms.named import ClientSettings, named, phase_settings
from fedtempo.algorithms.parts.expectation import expectation
from fedtempo.client.network import Network
from fedtempo.client.objectives import component, mixture
from fedtempo.client.phase import Hook, Length, Phase, length
from fedtempo.client.transforms import sgd
from fedtempo.errors import is_count, require
from fedtempo.params import Params
from fedtempo.schedules import Now, Rate, checked_rate, constant
from fedtempo.server.step import descend, descend_scaled
from fedtempo.server.sums import Aggregate
from fedtempo.tasks import Batch


@named
def fedem(
    lr: Rate,
    steps: Rate | None = None,
    *,
    components: int = 3,
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "samples",
    over: Literal["sampled", "all"] = "sampled",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """E-step q_m(s) ~ pi_m exp(-loss_m(s)) with the received components, pi_m = mean_s q_m(s); M-step: K steps on q.

    Marfoq et al. (2021). Component m descends on mean_s q_m(s) loss_m(s); each is averaged; prediction is
    sum_m pi_m softmax(h_m); of labels sum_m pi_m sigmoid(h_m), of numbers sum_m pi_m h_m. Components start different:
    component m is drawn from the seed and m. `over="all"` normalises weights over all clients, so absent ones count as
    unchanged, as the authors' code does. A new client makes one E-step with frozen components. One component is FedAvg.
    """
    require(is_count(components), "components", "an int >= 1", components)
    counted = over == "sampled" or weighting != "processed"
    require(counted, "weighting", "'samples' or 'uniform' over all clients: absent ones process nothing", weighting)
    phase = Phase(
        length(steps, epochs),
        checked_rate(lr, "lr"),
        objective=mixture,
        on="shared",
        hooks=(Hook(enter=expectation),),
        **phase_settings(clients),
    )
    transform = sgd(checked_rate(server_lr, "server_lr"))

    def share_of_all(aggregate: Aggregate, now: Now) -> float:
        return aggregate.weight / (now.total_samples if weighting == "samples" else now.clients)

    return Algorithm(
        (phase,),
        server=descend(transform) if over == "sampled" else descend_scaled(descend(transform), share_of_all),
        weighting=weighting,
        memory=Memory(initial_state=lambda shared, trained: {"pi": _even(shared, components)}),
        serving=Serving(
            predict_mixture,
            newcomer_phases=(replace(phase, length=Length(constant(0), minimum=0)),),
            finetune_on="shared",
            finetune_like=phase,
        ),
        components=components,
    )


def _even(shared: Params, components: int) -> Tensor:
    first = next(p for p in shared.values() if p.is_floating_point())
    return torch.full((components,), 1.0 / components, dtype=first.dtype, device=first.device)


def predict_mixture(network: Network, shared: Params, personal: Params, batch: Batch, train: bool = False) -> Tensor:
    """log sum_m pi_m softmax(h_m(x)): logits of the client's own mixture; for numbers sum_m pi_m h_m(x)."""
    pi = personal["pi"]
    outputs = [network.forward(component(shared, m), batch, train) for m in range(pi.shape[0])]
    if network.outputs_are == "numbers":
        return (torch.stack(outputs, dim=-1) * pi).sum(-1)
    if network.outputs_are == "labels":
        # log p - log(1 - p), the logit of p = sum_m pi_m sigmoid(h_m(x)).
        return _log_mixture([F.logsigmoid(h) for h in outputs], pi) - _log_mixture(
            [F.logsigmoid(-h) for h in outputs], pi
        )
    classes = 1 if network.outputs_are == "classes second" else -1
    return _log_mixture([h.log_softmax(classes) for h in outputs], pi)


def _log_mixture(logarithms: list[Tensor], pi: Tensor) -> Tensor:
    """log sum_m pi_m p_m, from log p_m."""
    return torch.logsumexp(torch.stack(logarithms, dim=-1) + torch.log(pi), dim=-1)
