"""A client's round as pure functions of one client: phases bound to a model.

`compile_client` turns an algorithm's phases into a `ClientProgram`: `init`, the steps of each stage, `finish`. It is
written for one client. Backends add the rest: the loop over clients, `vmap`, processes, machines. The local step is
`step` inside `_step_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtempo.client.gradients import GradientOf, Replayed, ValueOf, by_autograd, by_transform_together, in_pieces
from fedtempo.client.network import NOT_INPUTS, Network
from fedtempo.client.objectives import Loss, Received, Value, View, supervised
from fedtempo.client.optimizer_state import GROUP, belongs_to, named_state, restored, without_states
from fedtempo.client.phase import Carry, Phase, StepInfo
from fedtempo.client.stage import Plain, Stage, Step, in_step
from fedtempo.errors import require
from fedtempo.params import Params, Scalar, add, combine, partition, select, tree_map
from fedtempo.schedules import Position
from fedtempo.tasks import Batch, Task, is_known, row_counts

CACHED_TIMELINES = 16
"""Client sizes whose step positions are kept. Clients of one size share a timeline, and most cohorts have few sizes."""

Upload = Callable[[Received, Carry], dict[str, Params]]
"""(what came down, carry after the last step) -> what goes up, by group."""
FinalState = Callable[[Received, Carry], Params]
"""(what came down, carry after the last step) -> the personal state that the client keeps for its next round."""
Begin = Callable[[Received, Params], tuple[Params, Params]]
"""(received, personal state) -> (personal state to start from, scratch)."""


class ClientProgram(NamedTuple):
    """What one client does in one round."""

    init: Callable[[Received, Params], Carry]
    stages: tuple[Stage, ...]
    finish: Callable[[Received, Carry], tuple[dict[str, Params], Params, dict[str, Tensor]]]
    """(upload by group, personal state to keep, measurements)."""
    first_states: Callable[[Params, Params], tuple[Params, Params]]
    """(shared, personal) -> first optimizer states: those the client keeps, those the server sends down."""


def compile_client(
    phases: tuple[Phase, ...],
    network: Network,
    task: Task,
    upload: Upload,
    final_state: FinalState,
    begin: Begin,
    remembers: bool = False,
) -> ClientProgram:
    """Bind phases to a model. Only a training round `remembers`: its optimizers go on from the states of the last."""
    mains = [_stage(i, phase, network, task) for i, phase in enumerate(phases)]
    besides = [phase.beside for phase in phases if phase.beside is not None]
    others = [_stage(len(mains) + i, phase, network, task) for i, phase in enumerate(besides)]
    # Every phase has a state of its own, those that step beside another too.
    parts = (*mains, *others)
    companions = iter(enumerate(others, len(mains)))
    stages = tuple(stage if stage.phase.beside is None else in_step(stage, *next(companions)) for stage in mains)
    remembers = remembers and any(stage.phase.optimizer.state != "reset" for stage in parts)

    def init(received: Received, personal: Params) -> Carry:
        # Optimizer states are stored among the personal tensors. The algorithm must not take them for its own.
        own, scratch = begin(_visible(received), without_states(personal))
        carry = Carry(received.shared, own, (), scratch)
        stored = {**received.extra, **personal} if remembers else {}
        return carry._replace(states=_first_states(parts, carry, stored))

    def finish(received: Received, carry: Carry) -> tuple[dict[str, Params], Params, dict[str, Tensor]]:
        # Two phases may count the same thing, such as clipped steps; their counts add up.
        measured: dict[str, Tensor] = {}
        for stage, (transformed, stepped) in zip(parts, carry.states, strict=True):
            counted = stage.phase.direction.measurements(transformed)
            for name, value in (*counted.items(), *stage.phase.optimizer.transform.measurements(stepped).items()):
                measured[name] = measured[name] + value if name in measured else value
        here = _visible(received)
        groups, kept = upload(here, carry), final_state(here, carry)
        own, averaged = _between_rounds(parts, carry) if remembers else ({}, {})
        # A client that sends nothing has nobody to average with.
        if averaged and groups:
            return {**groups, GROUP: averaged}, {**kept, **own}, measured
        return groups, {**kept, **own}, measured

    def first_states(shared: Params, personal: Params) -> tuple[Params, Params]:
        if not remembers:
            return {}, {}
        carry = Carry(shared, personal, (), {})
        carry = carry._replace(states=_first_states(parts, carry, {}))
        return _between_rounds(parts, carry)

    return ClientProgram(init, stages, finish, first_states)


def _visible(received: Received) -> Received:
    """What came down, as the algorithm sees it: without the averaged states of the optimizers."""
    extra = without_states(received.extra)
    return received if extra is received.extra else received._replace(extra=extra)


def _first_states(stages: Sequence[Stage], carry: Carry, stored: Params) -> tuple[Any, ...]:
    """Every phase's state at the start of a round: fresh, or restored where an optimizer's state was stored."""
    states = []
    for index, stage in enumerate(stages):
        trained = select(_model(stage.phase, carry), stage.trained)
        stepped = stage.phase.optimizer.transform.init(trained)
        if stored and stage.phase.optimizer.state != "reset":
            stepped = restored(index, stepped, stored)
        states.append((stage.phase.direction.init(trained), stepped))
    return tuple(states)


def _between_rounds(stages: Sequence[Stage], carry: Carry) -> tuple[Params, Params]:
    """The optimizer states that the client keeps, and those that are averaged with the others'."""
    kept: Params = {}
    averaged: Params = {}
    for index, (stage, (_, stepped)) in enumerate(zip(stages, carry.states, strict=True)):
        rule, on = stage.phase.optimizer.state, stage.phase.on
        for name, tensor in ({} if rule == "reset" else named_state(index, stepped)).items():
            # What is personal never leaves the client, and neither does what was computed from it.
            own = on == "personal" or (on == "both" and belongs_to(name, carry.personal))
            (kept if rule == "keep" or own else averaged)[name] = tensor
    return kept, averaged


def _stage(index: int, phase: Phase, network: Network, task: Task) -> Stage:
    trained = _trained(phase, network)
    # Only a head on an unchanging body can reuse features: a moving body or dropout would change them at every step.
    reuses = phase.on == "both" and network.body_is_pure() and all(n.startswith("head.") for n in trained)
    loss = _loss_of(network, task)

    def enter(received: Received, carry: Carry, data: Batch) -> tuple[Carry, Batch]:
        if phase.enter is not None:
            return phase.enter(network, task, _visible(received), carry, data)
        features = network.features(_model(phase, carry), data, train=True)
        kept = {n: v for n, v in data.items() if n in NOT_INPUTS or n.startswith("_")}
        return carry, {**kept, "_features": features}

    def split(carry: Carry) -> tuple[Params, Params]:
        return partition(_model(phase, carry), trained)

    def value_of(free: Params, fixed: Params, batch: Batch) -> Value:
        # Used only where the objective is `supervised` (see `_plain`), which needs neither the view nor the position.
        value, after = loss({**fixed, **free}, batch)
        return Value(value, value, after)

    step, plain = _step_of(index, phase, network, task, split), _plain(phase, network, task, value_of)
    return Stage(phase, trained, reuses, enter, step, split, plain, lru_cache(CACHED_TIMELINES)(phase.positions))


def _loss_of(network: Network, task: Task) -> Loss:
    """The mean loss of a batch at some parameters, and the model's buffers after the forward pass."""
    buffers = frozenset(network.buffers)

    def loss(
        params: Params, batch: Batch, weights: Tensor | None = None, shift: Tensor | None = None
    ) -> tuple[Tensor, Params]:
        # BatchNorm writes its statistics in place; the clones keep the caller's tensors as they were.
        after = {n: p.clone() for n, p in params.items() if n in buffers}
        return network.loss(task, {**params, **after}, batch, train=True, weights=weights, shift=shift), after

    return loss


def _step_of(
    index: int, phase: Phase, network: Network, task: Task, split: Callable[[Carry], tuple[Params, Params]]
) -> Step:
    """One gradient step of the phase: y <- y - lr * optimizer(direction(gradient))."""
    loss, counts = _loss_of(network, task), partial(row_counts, task)

    def step(
        gradient_of: GradientOf,
        received: Received,
        carry: Carry,
        batch: Batch,
        now: Position,
        may_overwrite: bool = False,
    ) -> tuple[Carry, Tensor]:
        # `before` are the tensors that this phase trains, `frozen` the other tensors of its model.
        before, frozen = split(carry)
        here = _visible(received)
        view = View(here, carry.shared, carry.personal, carry.scratch, network)
        gradient, value = in_pieces(gradient_of, phase.accumulate, counts)(
            lambda free, fixed, rows: phase.objective(loss, {**fixed, **free}, rows, view, now), before, frozen, batch
        )
        if phase.correction is not None:
            gradient = {**gradient, **add(phase.correction(view), gradient)}
        transformed, stepped = carry.states[index]
        direction, transformed = phase.direction.update(gradient, transformed, before, now)
        direction, stepped = phase.optimizer.transform.update(direction, stepped, before, now)
        state = (transformed, stepped)
        rate = phase.lr(now)
        # Writing the step over its start keeps the weights in the cache. It is safe where nobody reads the start
        # again: not the caller, not `after`, and not a transform that keeps the weights themselves in its state.
        reads_start = phase.after is not None and phase.after_reads_start
        in_place = may_overwrite and not reads_start and not _shares_memory(state, before)
        after = {n: _descend(p, direction[n], rate, in_place) for n, p in before.items()}
        states = (*carry.states[:index], state, *carry.states[index + 1 :])
        moved = _replaced(phase, carry._replace(states=states), {**after, **value.buffers})
        if phase.after is not None:
            info = StepInfo({} if in_place else before, after, direction, rate)
            moved = phase.after(moved, info, here, now)
        return moved, value.loss

    return step


def _trained(phase: Phase, network: Network) -> frozenset[str]:
    """The parameters that a phase moves."""
    if phase.own:
        names = phase.trains.names(network.training) & frozenset(network.parameters)
        return frozenset(phase.own + name for name in names - network.frozen) or frozenset({phase.own})
    matched = phase.trains.names(network.training) & frozenset(network.parameters)
    require(bool(matched), "trains", "a selector that matches at least one parameter", phase.trains)
    trained = matched - network.frozen
    rule = "a selector that matches at least one parameter that is not frozen (requires_grad=False)"
    require(bool(trained), "trains", rule, phase.trains)
    return trained


def _plain(phase: Phase, network: Network, task: Task, value_of: ValueOf) -> Plain | None:
    """The fast ways to the gradient, where the objective is the data loss of whole batches.

    A recorded step replays torch's operations. That is the same step only if nothing but weights and batch decides
    which operations they are. Torch's layers and ours are like that; a user's code is watched while it is replayed.
    """
    if phase.objective is not supervised or phase.accumulate > 1 or network.hooked():
        return None
    watch = None if network.is_known() and is_known(task) else _unchanged(network)
    return Plain(value_of, Replayed(by_autograd, watch), Replayed(by_transform_together, watch))


def _unchanged(network: Network) -> Callable[[], bool]:
    """A function that says whether the model's Python attributes are still what they are now."""
    before = network.python_state()
    return lambda: network.python_state() == before


def _model(phase: Phase, carry: Carry) -> Params:
    """The tensors that the phase's model is made of."""
    if phase.on == "shared" or not carry.personal:
        return carry.shared
    # A personal copy of the model (Ditto) leaves out frozen tensors to save memory; they come from the shared model.
    return combine(carry.shared, carry.personal)


def _replaced(phase: Phase, carry: Carry, new: Params) -> Carry:
    """The carry with new tensors; a personal tensor never ends up among the shared ones."""
    if phase.on == "shared":
        return carry._replace(shared={**carry.shared, **new})
    if phase.on == "personal":
        return carry._replace(personal={**carry.personal, **new})
    own, common = partition(new, carry.personal)
    return carry._replace(shared={**carry.shared, **common}, personal={**carry.personal, **own})


def _descend(p: Tensor, direction: Tensor, rate: Scalar, in_place: bool) -> Tensor:
    """p - rate * direction, with the same bits whether it overwrites `p` or not."""
    # Under `vmap` clients of different sizes have different rates, and the rate is a tensor: `alpha` takes none.
    if not isinstance(rate, (int, float)):
        return p - rate * direction
    return p.sub_(direction, alpha=rate) if in_place else torch.sub(p, direction, alpha=rate)


def _shares_memory(state: Any, params: Params) -> bool:
    """Whether a transform has kept the parameters themselves in its state."""
    kept: set[int] = set()
    tree_map(lambda t: kept.add(t.untyped_storage().data_ptr()) if isinstance(t, Tensor) else None, state)
    return bool(kept) and any(p.untyped_storage().data_ptr() in kept for p in params.values())
