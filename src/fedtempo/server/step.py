"""The server's step: from the mean upload to the next model, as two pure functions, like a gradient transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from torch import nn

from fedtempo.client.transforms import Transform
from fedtempo.params import Params, Selector, add, nothing, scaled, subtract, zeros_like
from fedtempo.schedules import Now, Schedule
from fedtempo.server.sums import Aggregate

Own = TypeVar("Own")


def serve_shared(shared: Params, state: object) -> Params:
    """The usual model to evaluate and serve: the shared one."""
    return shared


class Server(NamedTuple):
    """What the server does with the mean of the uploads: `init` and `step`, and what follows from their state."""

    init: Callable[[Params], Any]
    """(trained shared parameters) -> the state before the first round."""
    step: Callable[[Params, Any, Aggregate, Now], tuple[Params, Any]]
    """(shared parameters, state, aggregate, now) -> (shared parameters, state)."""
    extra: Callable[[Any], Params] = lambda state: {}
    """What goes down to clients besides the model."""
    model: Callable[[Params, Any], Params] = serve_shared
    """The parameters that are evaluated and served."""
    rewrap: Callable[[Server], Server] = lambda server: server
    """server -> the same additions (a factor, a control variate) around another server's step (see `with_server`)."""
    measurements: Callable[[Any], dict[str, float]] = lambda state: {}
    """Numbers for the round's report, read off the state."""
    schedules: tuple[tuple[str, Schedule], ...] = ()
    """Name and schedule of every server rate, so that they can be checked and printed before a run."""
    fitted: Callable[[nn.Module, tuple[int, ...]], Server] | None = None
    """(model, numbers of the training clients) -> this server, where it has to know them before the first round (AFL).
    """
    within: Callable[[Callable[[Server], Server]], Server] | None = None
    """wrap -> this server with `wrap` around the step that its additions are around; None where there are none (see
    `inside`)."""
    moves: Selector = nothing
    """Tensors that no client trains and that the server moves (FedEx-LoRA's base). They go down in every round, and
    `step` is given them beside the trained ones."""


def descend(transform: Transform) -> Server:
    """x <- x - transform(-mean delta): the mean displacement is the server's negative gradient."""

    def step(shared: Params, state: Any, aggregate: Aggregate, now: Now) -> tuple[Params, Any]:
        gradient = scaled(aggregate.means["delta"], -1.0)
        update, state = transform.update(gradient, state, shared, now)
        return subtract(shared, update), state

    return Server(transform.init, step, schedules=tuple((f"server {n}", s) for n, s in transform.schedules))


def descend_scaled(server: Server, factor: Callable[[Aggregate, Now], float]) -> Server:
    """As `server`, with the mean displacement first multiplied by `factor(aggregate, now)`."""

    def change(aggregate: Aggregate, now: Now) -> Aggregate:
        means = {**aggregate.means, "delta": scaled(aggregate.means["delta"], factor(aggregate, now))}
        return aggregate._replace(means=means)

    return on_changed(server, change)


def on_changed(server: Server, change: Callable[[Aggregate, Now], Aggregate]) -> Server:
    """As `server`, on what `change(aggregate, now)` makes of the aggregate; see `around` where it needs a state."""

    def step(shared: Params, state: Any, aggregate: Aggregate, now: Now) -> tuple[Params, Any]:
        return server.step(shared, state, change(aggregate, now), now)

    return server._replace(
        step=step,
        rewrap=lambda other: on_changed(server.rewrap(other), change),
        fitted=fitting(server, lambda inner: on_changed(inner, change)),
        within=lambda wrap: on_changed(inside(server, wrap), change),
    )


def inside(server: Server, wrap: Callable[[Server], Server]) -> Server:
    """The server with `wrap` around its innermost step: behind what an algorithm makes of the mean upload first."""
    return wrap(server) if server.within is None else server.within(wrap)


def fitting(server: Server, wrap: Callable[[Server], Server]) -> Callable[[nn.Module, tuple[int, ...]], Server] | None:
    """`Server.fitted` of what `wrap` puts around a server."""
    fit = server.fitted
    return None if fit is None else lambda model, clients: wrap(fit(model, clients))


def around(
    server: Server,
    name: str,
    first: Callable[[Params], Own],
    before: Callable[[Params, Own, Aggregate, Now], tuple[Aggregate, Own]],
    sends: Callable[[Own], Params] = lambda own: {},
    measurements: Callable[[Own], dict[str, float]] = lambda own: {},
) -> Server:
    """As `server`, with a state of its own under `name`, which `before` moves on ahead of every step.

    `before(shared, own state, aggregate, now)` gives the aggregate that `server` then steps on, and the next state.
    """

    def step(shared: Params, state: Any, aggregate: Aggregate, now: Now) -> tuple[Params, Any]:
        aggregate, own = before(shared, state[name], aggregate, now)
        shared, inner = server.step(shared, state["server"], aggregate, now)
        return shared, {"server": inner, name: own}

    return server._replace(
        init=lambda shared: {"server": server.init(shared), name: first(shared)},
        step=step,
        extra=lambda state: {**server.extra(state["server"]), **sends(state[name])},
        model=lambda shared, state: server.model(shared, state["server"]),
        measurements=lambda state: {**server.measurements(state["server"]), **measurements(state[name])},
        rewrap=lambda other: around(server.rewrap(other), name, first, before, sends, measurements),
        fitted=fitting(server, lambda inner: around(inner, name, first, before, sends, measurements)),
        within=lambda wrap: around(inside(server, wrap), name, first, before, sends, measurements),
    )


def averaging(server: Server, group: str, first: Params) -> Server:
    """As `server`, and also keep the mean of one group of the upload and send it down. It starts as `first`."""

    def before(shared: Params, own: Params, aggregate: Aggregate, now: Now) -> tuple[Aggregate, Params]:
        mean = {n: t.to(first[n].dtype) for n, t in aggregate.means.get(group, {}).items()}
        return aggregate, {**own, **mean}

    return around(server, group, lambda shared: first, before, sends=lambda own: own)


def estimating(server: Server, by_samples: bool = False) -> Server:
    """As `server`, on EF21's estimate: the mean over all N clients of what each has sent so far.

    d <- d + (1/N) sum_{i in S} c_i, and the inner step sees d. An absent client counts with what it sent last. With
    `by_samples` clients count by their samples, in d too.
    """

    def before(shared: Params, own: Params, aggregate: Aggregate, now: Now) -> tuple[Aggregate, Params]:
        share = aggregate.weight / now.total_samples if by_samples else aggregate.clients / now.clients
        estimate = add(own, aggregate.means["delta"], share)
        return aggregate._replace(means={**aggregate.means, "delta": estimate}), estimate

    return around(server, "estimate", zeros_like, before)
