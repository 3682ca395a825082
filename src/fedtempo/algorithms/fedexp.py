"""FedExP: the server extrapolates when clients disagree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm, Uploads, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.params import Params, add, scaled, squared_norm
from fedtempo.schedules import Now, Rate, Schedule, as_schedule, checked_rate
from fedtempo.server.step import Server, around, serve_shared
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
    training goes on from the last. Under another server optimizer (`with_server`) eta_g D takes the place of D.
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
    rate_of, model = _extrapolation(as_schedule(eps), per_client), _mean_of_two if average else serve_shared

    def step(shared: Params, state: Any, aggregate: Aggregate, now: Now) -> tuple[Params, Any]:
        rate = rate_of(aggregate, now)
        return add(shared, aggregate.means["delta"], rate), {"previous": shared, "rate": rate.to(torch.float64)}

    return Server(
        init=_first,
        step=step,
        model=model,
        rewrap=lambda other: _ahead_of(other, eps, per_client, average),
        measurements=lambda state: {"server_lr": float(state["rate"])},
        schedules=(("eps", as_schedule(eps)),),
    )


def _ahead_of(server: Server, eps: Rate, per_client: bool, average: bool) -> Server:
    """As `server`, on eta_g D in place of D."""
    rate_of = _extrapolation(as_schedule(eps), per_client)

    def before(shared: Params, own: Any, aggregate: Aggregate, now: Now) -> tuple[Aggregate, Any]:
        rate = rate_of(aggregate, now)
        means = {**aggregate.means, "delta": scaled(aggregate.means["delta"], rate)}
        return aggregate._replace(means=means), {"previous": shared, "rate": rate.to(torch.float64)}

    wrapped = around(
        server, "extrapolation", _first, before, measurements=lambda own: {"server_lr": float(own["rate"])}
    )
    return wrapped._replace(
        model=(lambda shared, state: _mean_of_two(shared, state["extrapolation"])) if average else wrapped.model,
        rewrap=lambda other: _ahead_of(server.rewrap(other), eps, per_client, average),
        schedules=(*server.schedules, ("eps", as_schedule(eps))),
        within=None,  # FedHyper's inner products are of D itself
    )


def _first(shared: Params) -> Any:
    return {"previous": dict(shared), "rate": torch.ones((), dtype=torch.float64)}


def _mean_of_two(shared: Params, state: Any) -> Params:
    return {n: (p + state["previous"][n]) / 2 if n in state["previous"] else p for n, p in shared.items()}


def _extrapolation(eps: Schedule, per_client: bool) -> Callable[[Aggregate, Now], Tensor]:
    """eta_g of this round."""

    def rate(aggregate: Aggregate, now: Now) -> Tensor:
        # `squared_norm` is the mean of ||Delta_i||^2, which a server cannot compute from the mean Delta: clients send
        # it.
        spread = aggregate.means["squared_norm"]["delta"]
        count = aggregate.clients if per_client else 1
        below = 2 * (squared_norm(aggregate.means["delta"]) + eps.at(now) * count)
        return torch.where(below > 0, (spread / below).clamp(min=1.0), torch.ones_like(below))

    return rate
