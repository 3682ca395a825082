"""A client's round as pure functions of one client: phases bound to a model.

`compile_client` turns an algorithm's phases into a `ClientProgram`. Backends add everything else: the loop over
clients, the client dimension of `vmap`, processes, machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fedtempo.client.gradients import GradientOf, Replayed, ValueOf, by_autograd, by_transform_together
from fedtempo.client.network import Network
from fedtempo.client.phase import Carry, Phase, StepInfo
from fedtempo.data.batches import Batching
from fedtempo.errors import require
from fedtempo.objectives import Loss, Received, Value, View, supervised
from fedtempo.params import Params, Scalar, add, combine, partition, select, tree_map
from fedtempo.schedules import Now, Position
from fedtempo.tasks import TASKS, Batch, Task, mean_loss

CACHED_TIMELINES = 16
"""Client sizes whose step positions are kept. Clients of one size share a timeline, and most cohorts have few sizes."""

Upload = Callable[[Received, Carry], dict[str, Params]]
FinalState = Callable[[Received, Carry], Params]
Begin = Callable[[Received, Params], tuple[Params, Params]]
"""(received, personal state) -> (personal state to start from, scratch)."""


class Step(Protocol):
    """One gradient step of one client."""

    def __call__(
        self,
        gradient_of: GradientOf,
        received: Received,
        carry: Carry,
        batch: Batch,
        now: Position,
        may_overwrite: bool = False,
    ) -> tuple[Carry, Tensor]:
        """The next carry and the loss. `may_overwrite` says that nobody else holds the carry's tensors."""
        ...


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
    split: Callable[[Carry], tuple[Params, Params]]
    """The model's tensors that this phase trains, and the others."""
    plain: Plain | None
    positions: Callable[[Now, int, Batching], Sequence[Now]]

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


def compile_client(
    phases: tuple[Phase, ...],
    network: Network,
    task: Task,
    upload: Upload,
    final_state: FinalState,
    begin: Begin,
) -> ClientProgram:
    """Bind phases to a model."""
    stages = tuple(_stage(i, phase, network, task) for i, phase in enumerate(phases))

    def init(received: Received, personal: Params) -> Carry:
        own, scratch = begin(received, personal)
        carry = Carry(received.shared, own, (), scratch)
        states = tuple(s.phase.direction.init(select(_model(s.phase, carry), s.trained)) for s in stages)
        return carry._replace(states=states)

    def finish(received: Received, carry: Carry) -> tuple[dict[str, Params], Params, dict[str, Tensor]]:
        measured: dict[str, Tensor] = {}
        for stage, state in zip(stages, carry.states, strict=True):
            for name, value in stage.phase.direction.measurements(state).items():
                measured[name] = measured[name] + value if name in measured else value
        return upload(received, carry), final_state(received, carry), measured

    return ClientProgram(init, stages, finish)


def _stage(index: int, phase: Phase, network: Network, task: Task) -> Stage:
    matched = phase.trains.names(network.training) & frozenset(network.parameters)
    require(bool(matched), "trains", "a selector that matches at least one parameter", phase.trains)
    trained = matched - network.frozen
    rule = "a selector that matches at least one parameter that is not frozen (requires_grad=False)"
    require(bool(trained), "trains", rule, phase.trains)
    # Only a head on an unchanging body can reuse features: a moving body or dropout would change them at every step.
    reuses = phase.on == "both" and network.body_is_pure() and all(n.startswith("head.") for n in trained)
    loss = _loss_of(network, task)

    def enter(received: Received, carry: Carry, data: Batch) -> tuple[Carry, Batch]:
        if phase.enter is not None:
            return phase.enter(network, task, received, carry, data)
        features = network.features(_model(phase, carry), data, train=True)
        kept = {n: v for n, v in data.items() if n == "y" or n.startswith("_")}
        return carry, {**kept, "_features": features}

    def split(carry: Carry) -> tuple[Params, Params]:
        return partition(_model(phase, carry), trained)

    def value_of(free: Params, fixed: Params, batch: Batch) -> Value:
        value, after = loss({**fixed, **free}, batch)
        return Value(value, value, after)

    # A recorded step replays torch's operations. That is the same step only if nothing but weights and batch decides
    # which operations they are. Torch's layers and ours are like that; a user's code is watched while it is replayed.
    plain = None
    if phase.objective is supervised and not network.hooked():
        watch = None if network.is_known() and task in TASKS.values() else _unchanged(network)
        plain = Plain(value_of, Replayed(by_autograd, watch), Replayed(by_transform_together, watch))
    step, positions = _step_of(index, phase, loss, split), lru_cache(CACHED_TIMELINES)(phase.positions)
    return Stage(phase, trained, reuses, enter, step, split, plain, positions)


def _loss_of(network: Network, task: Task) -> Loss:
    """The mean loss of a batch at some parameters, and the model's buffers after the forward pass."""
    buffers = frozenset(network.buffers)

    def loss(params: Params, batch: Batch, weights: Tensor | None = None) -> tuple[Tensor, Params]:
        # BatchNorm writes its statistics in place; the clones keep the caller's tensors as they were.
        after = {n: p.clone() for n, p in params.items() if n in buffers}
        outputs = network.forward({**params, **after}, batch, train=True)
        return mean_loss(task, outputs, batch, weights), after

    return loss


def _step_of(index: int, phase: Phase, loss: Loss, split: Callable[[Carry], tuple[Params, Params]]) -> Step:
    """One gradient step of the phase: y <- y - lr * direction(gradient)."""

    def step(
        gradient_of: GradientOf,
        received: Received,
        carry: Carry,
        batch: Batch,
        now: Position,
        may_overwrite: bool = False,
    ) -> tuple[Carry, Tensor]:
        before, frozen = split(carry)
        view = View(received, carry.shared, carry.personal, carry.scratch)
        gradient, value = gradient_of(
            lambda free, fixed, rows: phase.objective(loss, {**fixed, **free}, rows, view, now), before, frozen, batch
        )
        if phase.correction is not None:
            gradient = {**gradient, **add(phase.correction(view), gradient)}
        direction, state = phase.direction.update(gradient, carry.states[index], before, now)
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
            moved = phase.after(moved, info, received, now)
        return moved, value.loss

    return step


def _unchanged(network: Network) -> Callable[[], bool]:
    """Whether the model remembers in Python what it remembered at first."""
    before = network.python_state()
    return lambda: network.python_state() == before


def _model(phase: Phase, carry: Carry) -> Params:
    """The tensors that the phase's model is made of."""
    if phase.on == "both":
        return combine(carry.shared, carry.personal) if carry.personal else carry.shared
    return carry.shared if phase.on == "shared" else carry.personal


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
    if not isinstance(rate, (int, float)):
        return p - rate * direction
    return p.sub_(direction, alpha=rate) if in_place else torch.sub(p, direction, alpha=rate)


def _shares_memory(state: Any, params: Params) -> bool:
    """Whether a transform has kept the parameters themselves in its state."""
    kept: set[int] = set()
    tree_map(lambda t: kept.add(t.untyped_storage().data_ptr()) if isinstance(t, Tensor) else None, state)
    return bool(kept) and any(p.untyped_storage().data_ptr() in kept for p in params.values())
