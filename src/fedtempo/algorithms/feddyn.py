"""FedDyn: each client remembers its displacements and is pulled against them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Unpack

from fedtempo.algorithms.algorithm import Algorithm, ClientSettings, Memory, Serving, named, predict_shared
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.rate_rules import HISTORY
from fedtempo.client.objectives import Pull, Received
from fedtempo.client.phase import Carry
from fedtempo.errors import require
from fedtempo.params import Params, add, select, subtract, zeros_like
from fedtempo.schedules import Now, Rate, Schedule, as_schedule, checked_rate
from fedtempo.server.step import Server, around
from fedtempo.server.sums import Aggregate

CENTRE = "_centre/"
"""Leads the names of x - s_i among a client's notes."""


@named
def feddyn(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    alpha: Rate = 0.01,
    alpha_by_samples: bool = False,
    server_lr: Rate = 1.0,
    serves: Literal["model", "mean"] = "model",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """y <- y - l (grad f_i(y) + alpha (s_i + y - x)), s_i <- s_i + (y_K - x); x <- mean_S y_i + (1/N) sum_all s_i.

    Acar et al. (2021) with g_i = -alpha s_i and h = -alpha mean s_i; clients count equally. The authors' code takes
    alpha mean(n) / n_i (`alpha_by_samples=True`). x runs ahead of the clients: `serves="mean"` evaluates the mean of
    the participants' models instead. A new user gets the model, fine-tuned without the pull.
    """
    strength = checked_rate(alpha, "alpha", positive=True)
    if alpha_by_samples:
        strength = strength * as_schedule(_mean_share)
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, **clients)
    phases = tuple(
        replace(p, correction=pull_to_centre(strength), on="shared", rates=(("alpha", strength),)) for p in plain.phases
    )
    return replace(
        plain,
        phases=phases,
        server=with_history(plain.server, serves == "mean"),
        memory=history_memory,
        serving=Serving(predict_shared, finetune_on="shared"),
        owns=frozenset({HISTORY}),
    )


def _mean_share(now: Now) -> float:
    require(now.samples > 0, "samples", "a number > 0", now.samples)
    return now.total_samples / now.clients / now.samples


def no_history(shared: Params, trained: frozenset[str]) -> Params:
    """s_i before the first round: zero."""
    return zeros_like(select(shared, trained))


def longer_history(received: Received, carry: Carry) -> Params:
    """s_i + (y_K - x)."""
    return add(carry.personal, subtract(select(carry.shared, carry.personal), received.shared))


def _note_centre(received: Received, personal: Params) -> tuple[Params, Params]:
    # x - s_i is constant during a round, so it is computed once and not at every step.
    return personal, {CENTRE + n: received.shared[n] - s for n, s in personal.items()}


history_memory = Memory(initial_state=no_history, begin=_note_centre, final_state=longer_history)
"""A client keeps s_i, the sum of its displacements."""


def pull_to_centre(strength: Schedule) -> Pull:
    """alpha (y - (x - s_i))."""
    return Pull(strength, lambda view: {n: view.scratch[CENTRE + n] for n in view.personal})


def with_history(server: Server, serves_mean: bool = False) -> Server:
    """A server that also keeps the mean of all clients' s_i and adds it to the mean displacement."""

    def first(shared: Params) -> Any:
        return {"history": zeros_like(shared), **({"mean": dict(shared)} if serves_mean else {})}

    def before(shared: Params, own: Any, aggregate: Aggregate, now: Now) -> tuple[Aggregate, Any]:
        delta = aggregate.means["delta"]
        history = add(own["history"], delta, aggregate.clients / now.clients)
        means = {**aggregate.means, "delta": add(delta, history)}
        mean = {"mean": add(shared, delta)} if serves_mean else {}
        return aggregate._replace(means=means), {"history": history, **mean}

    wrapped = around(server, "dynamic", first, before)
    if not serves_mean:
        return wrapped
    return wrapped._replace(model=lambda shared, state: {**shared, **state["dynamic"]["mean"]})
