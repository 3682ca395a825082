"""SCAFFOLD's server, which keeps the shared control variate."""

from __future__ import annotations

from typing import Any

from fedtempo.params import Params, add, zeros_like
from fedtempo.schedules import Now
from fedtempo.server.step import Server, fitting, inside
from fedtempo.server.sums import Aggregate


def with_control(inner: Server, by_samples: bool = False) -> Server:
    """A server that also keeps c, sends it down, and moves it by (|S| / N) mean Delta c_i.

    `by_samples` says that clients have multiplied their changes by n_i / n; then the sum of the changes is added.
    """

    def step(shared: Params, state: Any, aggregate: Aggregate, now: Now) -> tuple[Params, Any]:
        shared, optimizer = inner.step(shared, state["optimizer"], aggregate, now)
        count = aggregate.clients / (1 if by_samples else now.clients)
        control = add(state["control"], aggregate.means["control"], count)
        return shared, {"optimizer": optimizer, "control": control}

    return inner._replace(
        init=lambda shared: {"optimizer": inner.init(shared), "control": zeros_like(shared)},
        step=step,
        extra=lambda state: {**inner.extra(state["optimizer"]), **state["control"]},
        model=lambda shared, state: inner.model(shared, state["optimizer"]),
        measurements=lambda state: inner.measurements(state["optimizer"]),
        rewrap=lambda other: with_control(inner.rewrap(other), by_samples),
        fitted=fitting(inner, lambda other: with_control(other, by_samples)),
        within=lambda wrap: with_control(inside(inner, wrap), by_samples),
    )
