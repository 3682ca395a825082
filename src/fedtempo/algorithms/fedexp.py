"""FedExP: the server extrapolates when clients disagree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

import torch

from fedtempo.algorithms.algorithm import Algorithm, Uploads, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.errors import ConfigError
from fedtempo.params import Params, add, squared_norm
from fedtempo.schedules import Now, Rate, as_schedule, checked_rate
from fedtempo.server.step import Server, serve_shared
from fedtempo.server.sums import Aggregate


@named
def fedexp(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    eps: Rate = 0.0,
    eps_per_client: bool = False,
    average_last_two: bool = True,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """x <- x + eta_g D with eta_g = max(1, sum_i w_i ||Delta_i||^2 / (2 (||D||^2 + eps))), D = sum_i w_i Delta_i.

    Jhunjhunwala et al. (2023), eq. 5. eps=0 as in the FedNAR experiments (0/0 counts as 1); the authors' code
    multiplies eps by the cohort's size (`eps_per_client=True`) and by the squared learning-rate decay each round
    (pass `per_round(eps, decay**2)`). Evaluation sees the mean of the last two models unless switched off;
    training goes on from the last.
    """
    checked_rate(eps, "eps")
    plain = fedavg(lr, steps, epochs=epochs, weighting=weighting, **clients)
    return replace(
        plain,
        uploads=Uploads(sends_norm=True),
        server=_server(eps, eps_per_client, average_last_two),
        owns=frozenset({"the server's rate"}),
    )


def _server(eps: Rate, per_client: bool, average: bool) -> Server:
    offset = as_schedule(eps)

    def step(shared: Params, state: Any, aggregate: Aggregate, now: Now) -> tuple[Params, Any]:
        # `squared_norm` is the mean of ||Delta_i||^2, which a server cannot compute from the mean Delta: clients send
        # it.
        delta = aggregate.means["delta"]
        spread = aggregate.means["squared_norm"]["delta"]
        below = 2 * (squared_norm(delta) + offset.at(now) * (aggregate.clients if per_client else 1))
        rate = torch.where(below > 0, (spread / below).clamp(min=1.0), torch.ones_like(below))
        return add(shared, delta, rate), {"previous": shared, "rate": rate.to(torch.float64)}

    def model(shared: Params, state: Any) -> Params:
        return {n: (p + state["previous"][n]) / 2 if n in state["previous"] else p for n, p in shared.items()}

    return Server(
        init=lambda shared: {"previous": dict(shared), "rate": torch.ones((), dtype=torch.float64)},
        step=step,
        model=model if average else serve_shared,
        rewrap=_refuse,
        measurements=lambda state: {"server_lr": float(state["rate"])},
        schedules=(("eps", offset),),
    )


def _refuse(server: Server) -> Server:
    raise ConfigError("fedexp must keep its own server step: its rate is the algorithm. Got another optimizer.")
