"""A client's round as pure functions of one client: phases bound to a model.

`compile_client` turns an algorithm's phases into a `ClientProgram`: `init`, the steps of each stage, `finish`. It is
written for one client. Backends add the rest: the loop over clients, `vmap`, processes, machines. The local step is in
`client/local_step.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from fedtempo.client.gradients import GradientOf, Replayed, ValueOf, by_autograd, by_transform_together
from fedtempo.client.local_step import START, Step, is_elementwise, loss_of, model_of, seen, split, step_of, visible
from fedtempo.client.network import NOT_INPUTS, Network
from fedtempo.client.objectives import Pulled, Received, Value, supervised
from fedtempo.client.optimizer_state import GROUP, belongs_to, named_state, restored, slot_of, without_states
from fedtempo.client.phase import Carry, Phase
from fedtempo.client.rules import PhaseState, first_rate_state, first_stop_state
from fedtempo.data.batches import Batching
from fedtempo.errors import require
from fedtempo.params import Params, chosen, select
from fedtempo.schedules import Now, Position
from fedtempo.tasks import Batch, Task, is_known

CACHED_TIMELINES = 16
"""Client sizes whose step positions are kept. Clients of one size share a timeline, and most cohorts have few sizes."""

Upload = Callable[[Received, Carry], dict[str, Params]]
"""(what came down, carry after the last step) -> what goes up, by group."""
FinalState = Callable[[Received, Carry], Params]
"""(what came down, carry after the last step) -> the personal state that the client keeps for its next round."""
Begin = Callable[[Received, Params], tuple[Params, Params]]
"""(received, personal state) -> (personal state to start from, scratch)."""


class Plain(NamedTuple):
    """An objective that depends on the model and the batch alone, and the fastest ways to its gradient."""

    value_of: ValueOf
    alone: GradientOf
    """For one client at a time."""
    together: GradientOf
    """For clients that are stacked."""


class Stage(NamedTuple):
    """A phase bound to a model: what backends run."""

    phase: Phase
    trained: frozenset[str]
    reuses_features: bool
    """Whether the body's features may be computed once for the whole phase (PFLEGO)."""
    enter: Callable[[Received, Carry, Batch], tuple[Carry, Batch]]
    step: Step
    plain: Plain | None
    positions: Callable[[Now, int, Batching], Sequence[Now]]
    number: int = 0

    def split(self, carry: Carry) -> tuple[Params, Params]:
        """The model's tensors that this phase trains, and the others."""
        return split(self.phase, self.trained, carry)

    @property
    def probes_other_points(self) -> bool:
        """Whether a step asks for gradients at other points than the weights."""
        rule = self.phase.rate_rule
        return self.phase.look is not None or (rule is not None and rule.probes_other_points)

    @property
    def needs_no_lanes(self) -> bool:
        """Whether the step also works on stacked clients as they are, once their gradients are known."""
        return self.plain is not None and is_elementwise(self.phase)

    def stopped(self, carry: Carry) -> Tensor | None:
        """Which clients have stopped before their last step, as 0 and 1; None where none can."""
        return None if self.phase.stop_rule is None else carry.states[self.number].stop["stopped"]

    def needs_all_rows(self, steps: int, samples: int, batching: Batching) -> bool:
        """Whether the stage starts with a pass over all rows: to enter, or because reusing features pays."""
        if self.phase.enter is not None:
            return True
        return self.reuses_features and (batching.size is None or steps * batching.size >= samples) and steps > 0


class ClientProgram(NamedTuple):
    """What one client does in one round."""

    init: Callable[[Received, Params], Carry]
    stages: tuple[Stage, ...]
    finish: Callable[[Received, Carry], tuple[dict[str, Params], Params, dict[str, Tensor]]]
    """(upload by group, personal state to keep, measurements)."""
    first_states: Callable[[Params, Params], tuple[Params, Params]]
    """(shared, personal) -> first optimizer states: those the client keeps, those the server sends down."""
    elementwise: bool = False
    """Whether `init`, the steps and `finish` treat every number alike, so that they also work on stacked clients."""


def compile_client(
    phases: tuple[Phase, ...],
    network: Network,
    task: Task,
    upload: Upload,
    final_state: FinalState,
    begin: Begin,
    remembers: bool = False,
    elementwise: bool = False,
) -> ClientProgram:
    """Bind phases to a model. Only a training round `remembers`: its optimizers go on from the states of the last.

    `elementwise` says that upload, final state and start treat every number alike.
    """
    mains = [_stage(i, phase, network, task) for i, phase in enumerate(phases)]
    besides = [phase.beside.phase for phase in phases if phase.beside is not None]
    others = [_stage(len(mains) + i, phase, network, task) for i, phase in enumerate(besides)]
    # Every phase has a state of its own, those that step beside another too.
    parts = (*mains, *others)
    companions = iter(others)
    stages = tuple(
        stage if stage.phase.beside is None else _in_step(stage, next(companions), stage.phase.beside.follows)
        for stage in mains
    )
    remembers = remembers and any(_keeps(stage.phase) for stage in parts)

    def init(received: Received, personal: Params) -> Carry:
        # Optimizer states are stored among the personal tensors. The algorithm must not take them for its own.
        own, scratch = begin(visible(received), without_states(personal))
        start = {n.removeprefix(START): t for n, t in scratch.items() if n.startswith(START)}
        carry = Carry({**received.shared, **start} if start else received.shared, own, (), scratch)
        stored = {**received.extra, **personal} if remembers else {}
        return carry._replace(states=_first_states(parts, carry, stored))

    def finish(received: Received, carry: Carry) -> tuple[dict[str, Params], Params, dict[str, Tensor]]:
        measured = _measured(parts, carry)
        here = seen(received, carry)
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

    return ClientProgram(
        init, stages, finish, first_states, elementwise and all(stage.needs_no_lanes for stage in stages)
    )


def _keeps(phase: Phase) -> bool:
    """Whether an optimizer or a rate rule of the phase goes on where it was."""
    return phase.optimizer.state != "reset" or (phase.rate_rule is not None and phase.rate_rule.keeps_state)


def _first_states(stages: Sequence[Stage], carry: Carry, stored: Params) -> tuple[PhaseState, ...]:
    """Every phase's state at the start of a round: fresh, or restored where an optimizer's state was stored."""
    states = []
    for index, stage in enumerate(stages):
        trained = select(model_of(stage.phase, carry), stage.trained)
        phase = stage.phase
        stepped = phase.optimizer.transform.init(trained)
        if stored and phase.optimizer.state != "reset":
            stepped = restored(index, stepped, stored)
        rate = {} if phase.rate_rule is None else first_rate_state(phase.rate_rule, trained)
        if stored and phase.rate_rule is not None and phase.rate_rule.keeps_state:
            rate = {**rate, "rule": restored(_rule(index), rate["rule"], stored)}
        stop = {} if phase.stop_rule is None else first_stop_state(phase.stop_rule, trained)
        states.append(PhaseState(phase.direction.init(trained), stepped, rate, stop))
    return tuple(states)


def _rule(index: int) -> str:
    """Where the state of a phase's rate rule is stored among the optimizers' states."""
    return f"{index}/rate"


def _measured(stages: Sequence[Stage], carry: Carry) -> Params:
    """What all phases measured. Two phases may count the same thing, such as clipped steps; their counts add up."""
    measured: Params = {}
    for stage, state in zip(stages, carry.states, strict=True):
        for name, value in _measurements(stage.phase, state).items():
            measured[name] = measured[name] + value if name in measured else value
    return measured


def _measurements(phase: Phase, state: PhaseState) -> Params:
    """What a phase measured, as sums over its steps."""
    counted = {**phase.direction.measurements(state.direction)}
    for name, value in phase.optimizer.transform.measurements(state.optimizer).items():
        counted[name] = counted[name] + value if name in counted else value
    if phase.rate_rule is not None:
        counted |= {name: state.rate[name] for name in ("rate", "rate_steps")}
    if phase.stop_rule is not None:
        counted["stopped_early"] = state.stop["stopped"]
    return counted


def _between_rounds(stages: Sequence[Stage], carry: Carry) -> tuple[Params, Params]:
    """The optimizer states that the client keeps, and those that are averaged with the others'."""
    kept: Params = {}
    averaged: Params = {}
    for index, (stage, state) in enumerate(zip(stages, carry.states, strict=True)):
        optimizer, on, rate_rule = stage.phase.optimizer, stage.phase.on, stage.phase.rate_rule
        rule, at_end = optimizer.state, optimizer.at_end
        if rate_rule is not None and rate_rule.keeps_state:
            kept |= named_state(_rule(index), state.rate["rule"])
        own_state = state.optimizer if rule == "reset" or at_end is None else at_end(state.optimizer)
        for name, tensor in ({} if rule == "reset" else named_state(index, own_state)).items():
            if slot_of(name) in optimizer.afresh:
                continue
            # What is personal never leaves the client, and neither does what was computed from it.
            own = on == "personal" or (on == "both" and belongs_to(name, carry.personal))
            (kept if rule == "keep" or own else averaged)[name] = tensor
    return kept, averaged


def _stage(index: int, phase: Phase, network: Network, task: Task) -> Stage:
    trained = _trained(phase, network)
    if phase.optimizer.for_model is not None:
        fitted = phase.optimizer.for_model(network.training, phase.own)
        phase = replace(phase, optimizer=replace(phase.optimizer, transform=fitted))
    # Only a head on an unchanging body can reuse features: a moving body or dropout would change them at every step.
    # A model that makes its own loss needs its inputs for that.
    pure = network.body_is_pure() and not task.own
    reuses = phase.on == "both" and pure and all(n.startswith("head.") for n in trained)
    loss = loss_of(network, task)

    def enter(received: Received, carry: Carry, data: Batch) -> tuple[Carry, Batch]:
        if phase.enter is not None:
            return phase.enter(network, task, seen(received, carry), carry, data)
        features = network.features(model_of(phase, carry), data, train=True)
        kept = {n: v for n, v in data.items() if n in NOT_INPUTS or n.startswith("_")}
        return carry, {**kept, "_features": features}

    def value_of(free: Params, fixed: Params, batch: Batch) -> Value:
        # Used only where the tape sees the data loss alone (see `_plain`), which needs no view and no position.
        value, after = loss({**fixed, **free}, batch)
        return Value(value, value, after)

    step, plain = step_of(index, phase, network, task, trained), _plain(phase, network, task, value_of)
    return Stage(phase, trained, reuses, enter, step, plain, lru_cache(CACHED_TIMELINES)(phase.positions), index)


def _in_step(stage: Stage, beside: Stage, follows: bool) -> Stage:
    """The stage that takes each step together with a companion's.

    One moves shared and the other personal tensors, so their results do not meet. Both start from the same carry unless
    the companion `follows`.
    """

    def step(
        gradient_of: GradientOf,
        received: Received,
        carry: Carry,
        batch: Batch,
        now: Position,
        may_overwrite: bool = False,
    ) -> tuple[Carry, Tensor]:
        moved, loss = stage.step(gradient_of, received, carry, batch, now)
        other, _ = beside.step(gradient_of, received, moved if follows else carry, batch, now)
        index = beside.number
        states = (*moved.states[:index], other.states[index], *moved.states[index + 1 :])
        return moved._replace(personal=other.personal, states=states), loss

    return stage._replace(step=step, plain=None)


def _trained(phase: Phase, network: Network) -> frozenset[str]:
    """The parameters that a phase moves."""
    matched = chosen(network.training, phase.trains) & frozenset(network.parameters)
    if phase.own and not matched and phase.trains.optional:
        return frozenset({phase.own})
    require(bool(matched), "trains", "a selector that matches at least one parameter", phase.trains)
    trained = matched - network.frozen
    rule = "a selector that matches at least one parameter that is not frozen (requires_grad=False)"
    require(bool(trained), "trains", rule, phase.trains)
    return frozenset(phase.own + name for name in trained)


def _plain(phase: Phase, network: Network, task: Task, value_of: ValueOf) -> Plain | None:
    """The fast ways to the gradient, where the objective is the data loss of whole batches, with a pull or without.

    A recorded step replays torch's operations. That is the same step only if nothing but weights and batch decides
    which operations they are. Torch's layers and ours are like that; a user's code is watched while it is replayed.
    """
    data_loss = phase.objective is supervised or isinstance(phase.objective, Pulled)
    if not data_loss or phase.accumulate > 1 or network.hooked():
        return None
    watch = None if network.is_known() and is_known(task) else _unchanged(network)
    return Plain(value_of, Replayed(by_autograd, watch), Replayed(by_transform_together, watch))


def _unchanged(network: Network) -> Callable[[], bool]:
    """A function that says whether the model's Python attributes are still what they are now."""
    before = network.python_state()
    return lambda: network.python_state() == before
