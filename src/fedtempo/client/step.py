"""One gradient step of one client: y <- y - lr * optimizer(direction(gradient))."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from fedtempo.client.gradients import GradientOf, in_pieces
from fedtempo.client.network import Network
from fedtempo.client.objectives import Loss, Pulled, Received, Value, View, supervised
from fedtempo.client.optimizer_state import without_states
from fedtempo.client.phase import Carry, Phase, StepInfo
from fedtempo.client.rules import GradientAt, PhaseState, Probe, base_rate, ruled_rate, stopped
from fedtempo.params import Params, Scalar, add, combine, is_plain, partition, tree_map
from fedtempo.schedules import Position
from fedtempo.tasks import Batch, Task, row_counts

START = "_start/"
"""Leads the names of the tensors that a client starts from in place of those received (relaxed initialisation)."""


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


def visible(received: Received) -> Received:
    """What came down, as the algorithm sees it: without the averaged states of the optimizers."""
    extra = without_states(received.extra)
    return received if extra is received.extra else received._replace(extra=extra)


def seen(received: Received, carry: Carry) -> Received:
    """What came down, as a client in the middle of its round sees it: with its own start in place of the model."""
    start = {n.removeprefix(START): t for n, t in carry.scratch.items() if n.startswith(START)}
    here = visible(received)
    return here._replace(shared={**here.shared, **start}) if start else here


def loss_of(network: Network, task: Task) -> Loss:
    """The mean loss of a batch at some parameters, and the model's buffers after the forward pass."""
    buffers = frozenset(network.buffers)

    def loss(
        params: Params, batch: Batch, weights: Tensor | None = None, shift: Tensor | None = None
    ) -> tuple[Tensor, Params]:
        # BatchNorm writes its statistics in place; the clones keep the caller's tensors as they were.
        after = {n: p.clone() for n, p in params.items() if n in buffers}
        return network.loss(task, {**params, **after}, batch, train=True, weights=weights, shift=shift), after

    return loss


def step_of(
    index: int, phase: Phase, network: Network, task: Task, split: Callable[[Carry], tuple[Params, Params]]
) -> Step:
    """The step of the phase with this number."""
    loss, counts = loss_of(network, task), partial(row_counts, task)
    ruled = phase.rate_rule is not None or phase.stop_rule is not None
    # A pull's gradient is known: the rest of the objective is the data loss, whose gradient has the fast ways.
    pull = phase.objective if isinstance(phase.objective, Pulled) else None
    objective = phase.objective if pull is None else supervised

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
        here = seen(received, carry)
        view = View(here, carry.shared, carry.personal, carry.scratch, network, now)
        way = in_pieces(gradient_of, phase.accumulate, counts)

        def value_of(free: Params, fixed: Params, rows: Batch) -> Value:
            return objective(loss, {**fixed, **free}, rows, view, now)

        def at_point(point: Params) -> tuple[Params, Value]:
            found, of_loss = way(value_of, point, frozen, batch)
            if pull is None:
                return found, of_loss
            # Only rules look at the objective's value.
            total = pull.value(of_loss, {**frozen, **point}, view, now) if ruled else of_loss
            return pull.gradient(found, point, view, now), total

        gradient_at: GradientAt = at_point if phase.look is None else phase.look(at_point, view, now)
        raw, value = gradient_at(before)
        gradient = _corrected(phase, raw, view, now)
        state = carry.states[index]
        direction, transformed = phase.direction.update(gradient, state.direction, before, now)
        direction, stepped = phase.optimizer.transform.update(direction, state.optimizer, before, now)
        new, rate, over = PhaseState(transformed, stepped, state.rate, state.stop), phase.lr(now), None
        if ruled:
            probe = Probe(raw, value.total, before, lambda p: gradient_at(p)[0], here, base_rate(phase.lr, now))
            rate, over, new = _follow_rules(phase, probe, new, rate, now)
        # Writing the step over its start keeps the weights in the cache. It is safe where nobody reads the start
        # again: not the caller, not `after`, not a client that stops, and not a transform that keeps the weights
        # themselves in its state.
        reads_start = over is not None or (phase.after is not None and phase.after_reads_start)
        in_place = may_overwrite and not reads_start and not _shares_memory(new, before)
        after = _descend(before, direction, rate, in_place)
        states = (*carry.states[:index], new, *carry.states[index + 1 :])
        moved = replaced(phase, carry._replace(states=states), {**after, **value.buffers})
        if phase.after is not None:
            info = StepInfo({} if in_place else before, after, direction, rate)
            moved = phase.after(moved, info, here, now)
        return (moved if over is None else _unless_over(over, index, carry, moved)), value.loss

    return step


def _corrected(phase: Phase, gradient: Params, view: View, now: Position) -> Params:
    """gradient + correction, or share gradient + (1 - share) correction, for the tensors that have a correction."""
    if phase.correction is None:
        return gradient
    correction = phase.correction(view)
    if phase.share is None:
        return {**gradient, **add(correction, gradient)}
    share = phase.share(now)
    # One pass over the tensors in place of two products and a sum.
    return {**gradient, **{n: torch.lerp(c, gradient[n], _like(share, c)) for n, c in correction.items()}}


def _like(value: Scalar, tensor: Tensor) -> Scalar:
    """A number as `lerp` takes it: a float, or a tensor of the same type."""
    return value.to(tensor.dtype) if isinstance(value, Tensor) else value


def _follow_rules(
    phase: Phase, probe: Probe, state: PhaseState, rate: Scalar, now: Position
) -> tuple[Scalar, Tensor | None, PhaseState]:
    """The step's rate, whether the client stops before it, and the rules' new states."""
    over = None
    if phase.stop_rule is not None:
        over, stop = stopped(phase.stop_rule, probe, state.stop, now)
        state = state._replace(stop=stop)
    if phase.rate_rule is not None:
        rate, ruled = ruled_rate(phase.rate_rule, phase.lr, probe, state.rate, now)
        state = state._replace(rate=ruled)
    return rate, over, state


def _unless_over(over: Tensor, index: int, before: Carry, moved: Carry) -> Carry:
    """The carry after the step, or the one before it where the client stops; the stop rule's own state moves on."""
    if is_plain(over):
        chosen = before if float(over) else moved
    else:
        chosen = tree_map(lambda old, new: torch.where(over > 0, old, new), before, moved)
    states = list(chosen.states)
    states[index] = states[index]._replace(stop=moved.states[index].stop)
    return chosen._replace(states=tuple(states))


def model_of(phase: Phase, carry: Carry) -> Params:
    """The tensors that the phase's model is made of."""
    if phase.on == "shared" or not carry.personal:
        return carry.shared
    # A personal copy of the model (Ditto) leaves out frozen tensors to save memory; they come from the shared model.
    return combine(carry.shared, carry.personal)


def replaced(phase: Phase, carry: Carry, new: Params) -> Carry:
    """The carry with new tensors; a personal tensor never ends up among the shared ones."""
    if phase.on == "shared":
        return carry._replace(shared={**carry.shared, **new})
    if phase.on == "personal":
        return carry._replace(personal={**carry.personal, **new})
    own, common = partition(new, carry.personal)
    return carry._replace(shared={**carry.shared, **common}, personal={**carry.personal, **own})


def _descend(params: Params, direction: Params, rate: Scalar, in_place: bool) -> Params:
    """params - rate * direction, with the same bits whether it overwrites them or not."""
    # Under `vmap` clients of different sizes have different rates, and the rate is a tensor: `alpha` takes none.
    if not isinstance(rate, (int, float)):
        return {n: p - rate * direction[n] for n, p in params.items()}
    if not in_place:
        return {n: torch.sub(p, direction[n], alpha=rate) for n, p in params.items()}
    torch._foreach_sub_(list(params.values()), [direction[n] for n in params], alpha=rate)
    return params


def _shares_memory(state: PhaseState, params: Params) -> bool:
    """Whether a transform or a rule has kept the parameters themselves in its state."""
    if all(isinstance(part, (tuple, dict)) and not part for part in state):  # most phases keep nothing
        return False
    kept: set[int] = set()
    tree_map(lambda t: kept.add(t.untyped_storage().data_ptr()) if isinstance(t, Tensor) else None, state)
    return bool(kept) and any(p.untyped_storage().data_ptr() in kept for p in params.values())
