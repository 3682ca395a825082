"""FedDyn: each client remembers its displacements and is pulled against them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Unpack

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Uploads, predict_shared
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.rate_rules import HISTORY
from fedtempo.client.objectives import Pull, Received
from fedtempo.client.phase import Carry
from fedtempo.errors import require
from fedtempo.params import Params, add, select, subtract, zeros_like
from fedtempo.schedules import Now, Rate, Schedule, as_schedule, checked_rate
from fedtempo.server.step import Server, around
from fedtempo.server.sums import Aggregate, Groups

CENTRE = "_centre/"
"""Leads the names of x - s_i among a client's notes."""
CHANGE = "last"
"""The group of an upload that says how far the client's last model has moved."""
LAST = "_last/"
"""Leads the names of y_i, the client's last model, among what it keeps."""


@named
def feddyn(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    alpha: Rate = 0.01,
    alpha_by_samples: bool = False,
    server_lr: Rate = 1.0,
    serves: Literal["model", "mean", "clients"] = "model",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """y <- y - l (grad f_i(y) + alpha (s_i + y - x)), s_i <- s_i + (y_K - x); x <- mean_S y_i + (1/N) sum_all s_i.

    Acar et al. (2021) with g_i = -alpha s_i and h = -alpha mean s_i; clients count equally. The authors' code takes
    alpha mean(n) / n_i (`alpha_by_samples=True`). x runs ahead of the clients: `serves="mean"` evaluates the mean of
    the participants' models instead, `serves="clients"` that of all clients' last models, which the authors plot. For
    the latter a client keeps its last model and uploads twice as much. A new user gets the model, fine-tuned without
    the pull.
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
        server=with_history(plain.server, serves),
        memory=_memory_with_model if serves == "clients" else history_memory,
        uploads=_two_displacements(plain.uploads) if serves == "clients" else plain.uploads,
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
    history = _without_model(carry.personal)
    return add(history, subtract(select(carry.shared, history), received.shared))


def _note_centre(received: Received, personal: Params) -> tuple[Params, Params]:
    # x - s_i is constant during a round, so it is computed once and not at every step.
    return personal, {CENTRE + n: received.shared[n] - s for n, s in _without_model(personal).items()}


def _without_model(personal: Params) -> Params:
    return {n: s for n, s in personal.items() if not n.startswith(LAST)}


history_memory = Memory(initial_state=no_history, begin=_note_centre, final_state=longer_history)
"""A client keeps s_i, the sum of its displacements."""


def _last(model: Params) -> Params:
    return {LAST + n: t for n, t in model.items()}


_memory_with_model = Memory(
    initial_state=lambda shared, trained: {**no_history(shared, trained), **_last(select(shared, trained))},
    begin=_note_centre,
    final_state=lambda received, carry: {
        **longer_history(received, carry),
        **_last(select(carry.shared, _without_model(carry.personal))),
    },
)
"""A client also keeps y_i, its last model; before its first round that is the initial one."""


def _two_displacements(plain: Uploads) -> Uploads:
    """y_K - x, and y_K minus the client's last model."""

    def upload(received: Received, carry: Carry) -> Groups:
        last = {n.removeprefix(LAST): t for n, t in carry.personal.items() if n.startswith(LAST)}
        return {**plain.upload(received, carry), CHANGE: subtract(select(carry.shared, last), last)}

    # The server adds changes up over the whole run, so one that a compressor altered would stay in the sum: they are
    # sent as they are.
    return replace(plain, upload=upload, unweighted=frozenset({CHANGE}))


def pull_to_centre(strength: Schedule) -> Pull:
    """alpha (y - (x - s_i))."""
    return Pull(strength, lambda view: {n: view.scratch[CENTRE + n] for n in _without_model(view.personal)})


def with_history(server: Server, serves: str = "model") -> Server:
    """A server that also keeps the mean of all clients' s_i and adds it to the mean displacement.

    It serves its model, the mean of the participants' models ("mean"), or that of all clients' last ones ("clients").
    """

    def first(shared: Params) -> Any:
        return {"history": zeros_like(shared), **({} if serves == "model" else {"served": dict(shared)})}

    def before(shared: Params, own: Any, aggregate: Aggregate, now: Now) -> tuple[Aggregate, Any]:
        delta, share = aggregate.means["delta"], aggregate.clients / now.clients
        history = add(own["history"], delta, share)
        means = {**aggregate.means, "delta": add(delta, history)}
        if serves == "model":
            return aggregate._replace(means=means), {"history": history}
        # Without a change of its own, as BatchNorm's statistics are, a tensor is the participants' mean.
        moved = means.pop(CHANGE, {})
        changed = add(select(own["served"], moved), moved, share)
        served = {**add(shared, delta), **changed}
        return aggregate._replace(means=means), {"history": history, "served": served}

    wrapped = around(server, "dynamic", first, before)
    if serves == "model":
        return wrapped
    return wrapped._replace(
        model=lambda shared, state: {**shared, **state["dynamic"]["served"]},
        rewrap=lambda other: with_history(server.rewrap(other), serves),
    )
