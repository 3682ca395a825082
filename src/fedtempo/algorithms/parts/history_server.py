"""The server that keeps the mean of all clients' histories: FedDyn's, and FedSpeed's as released."""

from __future__ import annotations

from typing import Any

from fedtempo.algorithms.parts.displacement_history import CHANGE
from fedtempo.params import Params, add, select, zeros_like
from fedtempo.schedules import Now
from fedtempo.server.step import Server, around, inside
from fedtempo.server.sums import Aggregate


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
        within=lambda wrap: with_history(inside(server, wrap), serves),
    )
