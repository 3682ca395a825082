"""One gradient step of one client: y <- y - lr * optimizer(direction(gradient))."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from fedtempo.client.gradients import GradientOf, in_pieces
from fedtempo.client.network import Network
from fedtempo.client.objectives import Loss, Pull, Pulled, Received, Steady, Value, View, supervised
from fedtempo.client.optimizer_state import without_states
from fedtempo.client.phase import Carry, Phase, StepInfo
from fedtempo.client.rules import GradientAt, PhaseState, Probe, base_rate, ruled_rate, stopped
from fedtempo.client.transforms import is_identity
from fedtempo.params import Params, Scalar, add, combine, is_plain, partition, tensors_in, tree_map
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
    return received._replace(extra=without_states(received.extra)) if received.extra else received


def seen(received: Received, carry: Carry) -> Received:
    """What came down, as a client in the middle of its round sees it: with its own start in place of the model."""
    here = visible(received)
    if not carry.scratch:
        return here
    start = {n.removeprefix(START): t for n, t in carry.scratch.items() if n.startswith(START)}
    return here._replace(shared={**here.shared, **start}) if start else here


def loss_of(network: Network, task: Task) -> Loss:
    """The mean loss of a batch at some parameters, and the model's buffers after the forward pass."""
    buffers = frozenset(network.buffers)

    def loss(
        params: Params, batch: Batch, weights: Tensor | None = None, shift: Tensor | None = None
    ) -> tuple[Tensor, Params]:
        # BatchNorm writes its statistics in place; the clones keep the caller's tensors as they were.
        given = {n: p.clone() if n in buffers else p for n, p in params.items()}
        value = network.loss(task, given, batch, train=True, weights=weights, shift=shift)
        return value, {n: p for n, p in given.items() if n in buffers}

    return loss


def split(phase: Phase, trained: frozenset[str], carry: Carry) -> tuple[Params, Params]:
    """The tensors of the phase's model that it trains, and the others."""
    return partition(model_of(phase, carry), trained)


def step_of(index: int, phase: Phase, network: Network, task: Task, trained: frozenset[str]) -> Step:
    """The step of the phase with this number, which moves the tensors with these names."""
    loss, counts = loss_of(network, task), partial(row_counts, task)
    ruled = phase.rate_rule is not None or phase.stop_rule is not None
    # A pull's gradient is known: the rest of the objective is the data loss, whose gradient has the fast ways.
    pulled = phase.objective if isinstance(phase.objective, Pulled) else None
    objective = phase.objective if pulled is None else supervised
    knows_data = objective is supervised
    apart = not ruled and _only_subtracts(phase)
    transforms = not (is_identity(phase.direction) and is_identity(phase.optimizer.transform))

    def step(
        gradient_of: GradientOf,
        received: Received,
        carry: Carry,
        batch: Batch,
        now: Position,
        may_overwrite: bool = False,
    ) -> tuple[Carry, Tensor]:
        # `before` are the tensors that this phase trains, `frozen` the other tensors of its model.
        before, frozen = split(phase, trained, carry)
        here = seen(received, carry)
        view = View(here, carry.shared, carry.personal, carry.scratch, network, now)
        way = gradient_of if phase.accumulate == 1 else in_pieces(gradient_of, phase.accumulate, counts)

        def value_of(free: Params, fixed: Params, rows: Batch) -> Value:
            return objective(loss, {**fixed, **free}, rows, view, now)

        of_data: tuple[Params, Tensor] | None = None

        def at_point(point: Params) -> tuple[Params, Value]:
            nonlocal of_data
            found, of_loss = way(value_of, point, frozen, batch)
            of_data = (found, of_loss.loss) if knows_data else None
            if pulled is None or apart:
                return found, of_loss
            # Only rules look at the objective's value.
            total = pulled.value(of_loss, {**frozen, **point}, view, now) if ruled else of_loss
            return pulled.pull.added(found, point, view), total

        gradient_at: GradientAt = at_point if phase.look is None else phase.look(at_point, view, now)
        raw, value = gradient_at(before)
        direction = raw if apart or phase.correction is None else _corrected(phase, raw, view, now)
        new, rate, over = carry.states[index], phase.lr(now), None
        if transforms:
            direction, new = _transformed(phase, direction, new, before, now)
        if ruled:
            base = base_rate(phase.lr, now)
            probe = Probe(raw, value.total, before, lambda p: gradient_at(p)[0], here, base, of_data)
            rate, over, new = _follow_rules(phase, probe, new, rate, now)
        # Writing the step over its start keeps the weights in the cache. It is safe where nobody reads the start
        # again: not the caller, not `after`, not a client that stops, and not a transform that keeps the weights
        # themselves in its state.
        reads_start = over is not None or (phase.after is not None and phase.after_reads_start)
        in_place = may_overwrite and not reads_start and not _shares_memory(new, before)
        if apart:
            after = _descend_apart(phase, before, direction, rate, view, now, in_place)
        else:
            after = _descend(before, direction, rate, in_place)
        states = (*carry.states[:index], new, *carry.states[index + 1 :])
        moved = replaced(phase, carry._replace(states=states), {**after, **value.buffers})
        if phase.after is not None:
            info = StepInfo({} if in_place else before, after, direction, rate)
            moved = phase.after(moved, info, here, now)
        return (moved if over is None else _unless_over(over, index, carry, moved)), value.loss

    return step


def is_elementwise(phase: Phase) -> bool:
    """Whether a step whose gradient is known treats every number alike, so that it also works on stacked clients."""
    return (
        (phase.correction is None or isinstance(phase.correction, (Steady, Pull)))
        and is_identity(phase.direction)
        and is_identity(phase.optimizer.transform)
        and (phase.rate_rule, phase.stop_rule, phase.look, phase.after, phase.beside) == (None,) * 5
    )


def _only_subtracts(phase: Phase) -> bool:
    """Whether nobody looks at the direction, so that its terms can be subtracted from the weights one by one."""
    pulled, correction = isinstance(phase.objective, Pulled), phase.correction
    # Terms are subtracted one after the other. So a later term must not read weights that an earlier one has moved:
    # there is at most one pull, and it goes first.
    fixed = isinstance(correction, Steady) or (isinstance(correction, Pull) and not pulled and phase.share is None)
    terms = fixed or (pulled and correction is None)
    looked_at = phase.after is not None and phase.after_reads_start
    return terms and not looked_at and is_identity(phase.direction) and is_identity(phase.optimizer.transform)


def _descend_apart(
    phase: Phase, params: Params, gradient: Params, rate: Scalar, view: View, now: Position, in_place: bool
) -> Params:
    """params - rate (gradient + mu (params - centre) + correction), or with the correction's share, term by term.

    A pass over the weights for each term takes half the time of making the direction first.
    """
    correction, share = phase.correction, 1.0 if phase.share is None else phase.share(now)
    if isinstance(phase.objective, Pulled):
        params = _approach(params, phase.objective.pull, rate, view, now, in_place)
    if isinstance(correction, Pull):
        params = _approach(params, correction, rate, view, now, in_place)
    elif correction is not None:
        params = _descend(params, correction(view), rate if phase.share is None else rate * (1 - share), in_place)
    return _descend(params, gradient, rate * share, in_place)


def _approach(params: Params, pull: Pull, rate: Scalar, view: View, now: Position, in_place: bool) -> Params:
    """params - rate mu (params - centre), for the tensors that have a centre."""
    centre, weight = pull.centre(view), rate * pull.strength(now)
    names = [n for n in params if n in centre]
    if not in_place or isinstance(weight, Tensor):
        return {**params, **{n: torch.lerp(params[n], centre[n], _like(weight, params[n])) for n in names}}
    torch._foreach_lerp_([params[n] for n in names], [centre[n] for n in names], weight)
    return params


def _corrected(phase: Phase, gradient: Params, view: View, now: Position) -> Params:
    """gradient + correction, or share gradient + (1 - share) correction, for the tensors that have a correction."""
    assert phase.correction is not None
    correction = phase.correction(view)
    if phase.share is None:
        return {**gradient, **add(correction, gradient)}
    share = phase.share(now)
    # One pass over the tensors in place of two products and a sum.
    return {**gradient, **{n: torch.lerp(c, gradient[n], _like(share, c)) for n, c in correction.items()}}


def _transformed(
    phase: Phase, gradient: Params, state: PhaseState, before: Params, now: Position
) -> tuple[Params, PhaseState]:
    """The direction of the step: the gradient after the algorithm's transforms and the client's optimizer."""
    direction, transformed = phase.direction.update(gradient, state.direction, before, now)
    direction, stepped = phase.optimizer.transform.update(direction, state.optimizer, before, now)
    return direction, state._replace(direction=transformed, optimizer=stepped)


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
    if phase.on == "shared" or (phase.on == "both" and not carry.personal):
        return carry._replace(shared={**carry.shared, **new})
    if phase.on == "personal":
        return carry._replace(personal={**carry.personal, **new})
    own, common = partition(new, carry.personal)
    return carry._replace(shared={**carry.shared, **common}, personal={**carry.personal, **own})


def _descend(params: Params, direction: Params, rate: Scalar, in_place: bool) -> Params:
    """params - rate * direction for the tensors that have a direction, with the same bits in place and not."""
    # Under `vmap` clients of different sizes have different rates, and the rate is a tensor: `alpha` takes none.
    if not isinstance(rate, (int, float)):
        return {**params, **{n: params[n] - rate * d for n, d in direction.items()}}
    if not in_place:
        return {**params, **{n: torch.sub(params[n], d, alpha=rate) for n, d in direction.items()}}
    if direction:
        torch._foreach_sub_([params[n] for n in direction], list(direction.values()), alpha=rate)
    return params


def _shares_memory(state: PhaseState, params: Params) -> bool:
    """Whether a transform or a rule has kept the parameters themselves in its state."""
    if all(isinstance(part, (tuple, dict)) and not part for part in state):  # most phases keep nothing
        return False
    memory = {t.untyped_storage().data_ptr() for t in tensors_in(state)}
    return bool(memory) and any(p.untyped_storage().data_ptr() in memory for p in params.values())
