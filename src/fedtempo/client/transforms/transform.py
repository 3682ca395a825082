"""What a gradient transform is, and how several make one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from fedtempo.client.kernels import decayed_step
from fedtempo.params import Params
from fedtempo.schedules import Position, Schedule

State = Any
"""What a transform remembers from step to step: tensors in nested dicts and tuples."""


def _no_measurements(state: State) -> dict[str, Tensor]:
    return {}


DecayAlone = Callable[[Params, float, State, Params, Position, float], tuple[float, State] | None]
"""(gradient, decay, state, params, now, rate) -> the d for which the update of `gradient + decay params` is
`gradient + d params`, and the state after the step. None where it is more than that, or where that takes long to
tell."""


OnePass = Callable[[Params, float, State, Params, Position, float], State]
"""(gradient, decay, state, params, now, rate) -> the state after `params - rate update(gradient + decay params)`, which
is written over the params and may be written over the state. None where no kernel can, and nothing is written."""


class Transform(NamedTuple):
    """Two pure functions, and a third that reads measurements (such as clip counts) off the state."""

    init: Callable[[Params], State]
    update: Callable[[Params, State, Params, Position], tuple[Params, State]]
    measurements: Callable[[State], dict[str, Tensor]] = _no_measurements
    schedules: tuple[tuple[str, Schedule], ...] = ()
    """Name and schedule of every rate inside, so that a plan can be printed before a run."""
    decay_alone: DecayAlone | None = None
    """Says where an update only adds weight decay: a step then decays and moves the weights in one pass over them."""
    one_pass: OnePass | None = None
    """Takes a whole step in one pass over the weights, where torch has a kernel for it."""
    trial: Callable[[Params, Params, Position], None] | None = None
    """Tries the user's functions inside on a gradient and weights, and raises an error that names a wrong one."""


def stateless(fn: Callable[[Params, Params, Position], Params], **rates: Schedule) -> Transform:
    """A transform without memory from `fn(gradient, params, now)`."""
    return Transform(lambda params: (), lambda g, s, p, now: (fn(g, p, now), s), schedules=tuple(rates.items()))


def _nothing(params: Params) -> tuple[()]:
    return ()


def _as_it_is(gradient: Params, state: State, params: Params, now: Position) -> tuple[Params, State]:
    return gradient, state


identity = Transform(_nothing, _as_it_is)


def is_identity(transform: Transform) -> bool:
    """Whether a transform changes nothing; one that came to a worker as bytes is no longer `identity` itself."""
    return transform.update is _as_it_is


def chain(*transforms: Transform) -> Transform:
    """One transform after the other."""
    active = [t for t in transforms if not is_identity(t)]
    if len(active) < 2:
        return active[0] if active else identity

    def update(gradient: Params, state: State, params: Params, now: Position) -> tuple[Params, State]:
        states = []
        for transform, part in zip(active, state, strict=True):
            gradient, new = transform.update(gradient, part, params, now)
            states.append(new)
        return gradient, tuple(states)

    def measurements(state: State) -> dict[str, Tensor]:
        return {k: v for t, part in zip(active, state, strict=True) for k, v in t.measurements(part).items()}

    def decay_alone(
        gradient: Params, decay: float, state: State, params: Params, now: Position, rate: float
    ) -> tuple[float, State] | None:
        return _decays_alone(active, gradient, decay, state, params, now, rate)

    def one_pass(gradient: Params, decay: float, state: State, params: Params, now: Position, rate: float) -> State:
        found = _decays_alone(active[:-1], gradient, decay, state[:-1], params, now, rate)
        if found is None:
            return None
        new = in_one_pass(active[-1], gradient, found[0], state[-1], params, now, rate)
        return None if new is None else (*found[1], new)

    def trial(gradient: Params, params: Params, now: Position) -> None:
        for transform in active:
            if transform.trial is not None:
                transform.trial(gradient, params, now)

    leading = all(t.decay_alone is not None for t in active[:-1])
    return Transform(
        lambda params: tuple(t.init(params) for t in active),
        update,
        measurements,
        tuple(entry for t in active for entry in t.schedules),
        decay_alone if leading and active[-1].decay_alone is not None else None,
        one_pass if leading and active[-1].one_pass is not None else None,
        trial if any(t.trial is not None for t in active) else None,
    )


def _decays_alone(
    transforms: Sequence[Transform],
    gradient: Params,
    decay: float,
    states: Sequence[State],
    params: Params,
    now: Position,
    rate: float,
) -> tuple[float, tuple[State, ...]] | None:
    """`DecayAlone` of one transform after the other."""
    after = []
    for transform, state in zip(transforms, states, strict=True):
        found = transform.decay_alone and transform.decay_alone(gradient, decay, state, params, now, rate)
        if not found:
            return None
        decay, new = found
        after.append(new)
    return decay, tuple(after)


def in_one_pass(
    transform: Transform, gradient: Params, decay: float, state: State, params: Params, now: Position, rate: float
) -> State:
    """`OnePass` of any transform: by its own kernel, or by that of weight decay where it only decays this time."""
    if transform.one_pass is not None:
        return transform.one_pass(gradient, decay, state, params, now, rate)
    found = transform.decay_alone and transform.decay_alone(gradient, decay, state, params, now, rate)
    if not found:
        return None
    decayed_step(params, gradient, rate, found[0])
    return found[1]
