"""One gradient step of one client: y <- y - lr * optimizer(direction(gradient))."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from fedtempo.client.descent import like, moved, moved_apart
from fedtempo.client.gradients import GradientOf, in_pieces
from fedtempo.client.network import Network
from fedtempo.client.objectives import Loss, Pull, Pulled, Received, Steady, Value, View, supervised
from fedtempo.client.optimizer_state import without_states
from fedtempo.client.overwriting import kept_by_after, kept_in_state, reads_start
from fedtempo.client.phase import Carry, Phase, StepInfo
from fedtempo.client.rules import GradientAt, PhaseState, Probe, base_rate, ruled_rate, stopped
from fedtempo.client.transforms import Transform, chain, in_one_pass, is_identity
from fedtempo.params import Params, Scalar, add, combine, is_plain, partition, tree_map
from fedtempo.schedules import Position
from fedtempo.tasks import Batch, Task, row_counts

START = "_start/"
"""Leads the names of the tensors that a client starts from in place of those received (relaxed initialisation)."""
SENT = "_sent/"
"""Leads the names of what the server sent in their place, for those who mean the shared model itself."""


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


def sent_down(received: Received, scratch: Params) -> Params:
    """The shared model as the server sent it, also where the client starts elsewhere."""
    return {n: scratch.get(SENT + n, t) for n, t in received.shared.items()}


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
    one_pass = _one_pass_of(phase) if transforms else None

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
        may_overwrite = may_overwrite and not kept_by_after(phase, carry, before)
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
        new, rate, ends, after = carry.states[index], phase.lr(now), None, None
        if transforms:
            after, direction, new = _transformed(phase, one_pass, direction, new, before, rate, now, may_overwrite)
        if ruled:
            base = base_rate(phase.lr, now)
            probe = Probe(raw, value.total, before, lambda p: gradient_at(p)[0], here, base, of_data)
            rate, ends, new = _follow_rules(phase, probe, new, rate, now)
            if ends is not None and is_plain(ends):
                return _still(carry, index, new), value.loss
        free = may_overwrite and ends is None and not reads_start(phase) and not kept_in_state(new, before)
        in_place = after is not None or free
        if apart:
            after = moved_apart(phase, before, direction, rate, view, now, in_place)
        elif after is None:
            after = moved(before, direction, rate, in_place)
        stepped = replaced(phase, _with_state(carry, index, new), {**after, **value.buffers})
        if phase.after is not None:
            stepped = phase.after(stepped, StepInfo({} if in_place else before, after, direction, rate), here, now)
        return (stepped if ends is None else _unless_stopped(ends, index, carry, stepped)), value.loss

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
    return terms and not reads_start(phase) and is_identity(phase.direction) and is_identity(phase.optimizer.transform)


def _one_pass_of(phase: Phase) -> Transform | None:
    """The phase's transforms in a row, if they may take a step in one pass: nobody looks at its direction or start."""
    whole = chain(phase.direction, phase.optimizer.transform)
    able = whole.one_pass is not None or whole.decay_alone is not None
    ruled = phase.rate_rule is not None or phase.stop_rule is not None
    return whole if able and not reads_start(phase) and not ruled else None


def _corrected(phase: Phase, gradient: Params, view: View, now: Position) -> Params:
    """gradient + correction, or share gradient + (1 - share) correction, for the tensors that have a correction."""
    assert phase.correction is not None
    correction = phase.correction(view)
    if phase.share is None:
        return {**gradient, **add(correction, gradient)}
    share = phase.share(now)
    # One pass over the tensors in place of two products and a sum.
    return {**gradient, **{n: torch.lerp(c, gradient[n], like(share, c)) for n, c in correction.items()}}


def _transformed(
    phase: Phase,
    one_pass: Transform | None,
    gradient: Params,
    state: PhaseState,
    before: Params,
    rate: Scalar,
    now: Position,
    may_overwrite: bool,
) -> tuple[Params | None, Params, PhaseState]:
    """The gradient after the algorithm's transforms and the client's optimizer, and their new state.

    First of the three are the weights after the step, where `one_pass` could take it: then the gradient stays as it
    was.
    """
    if one_pass is not None and isinstance(rate, (int, float)):
        taken = _in_one_pass(one_pass, phase, gradient, state, before, now, rate, may_overwrite)
        if taken is not None:
            return taken[0], gradient, taken[1]
    direction, transformed = phase.direction.update(gradient, state.direction, before, now)
    direction, stepped = phase.optimizer.transform.update(direction, state.optimizer, before, now)
    return None, direction, state._replace(direction=transformed, optimizer=stepped)


def _in_one_pass(
    whole: Transform,
    phase: Phase,
    gradient: Params,
    state: PhaseState,
    before: Params,
    now: Position,
    rate: float,
    may_overwrite: bool,
) -> tuple[Params, PhaseState] | None:
    """The weights and the state after a step in one pass; None where it has to be taken in several."""
    if not may_overwrite and not all(map(is_plain, before.values())):
        return None
    # The kernels write over the weights. A copy costs less than the passes that it saves.
    params = before if may_overwrite else {n: p.clone() for n, p in before.items()}
    # `chain` leaves out a transform that changes nothing, and its state with it.
    if is_identity(phase.optimizer.transform):
        new = in_one_pass(whole, gradient, 0.0, state.direction, params, now, rate)
        return None if new is None else (params, state._replace(direction=new))
    if is_identity(phase.direction):
        new = in_one_pass(whole, gradient, 0.0, state.optimizer, params, now, rate)
        return None if new is None else (params, state._replace(optimizer=new))
    new = in_one_pass(whole, gradient, 0.0, (state.direction, state.optimizer), params, now, rate)
    return None if new is None else (params, state._replace(direction=new[0], optimizer=new[1]))


def _follow_rules(
    phase: Phase, probe: Probe, state: PhaseState, rate: Scalar, now: Position
) -> tuple[Scalar, Tensor | None, PhaseState]:
    """The step's rate, whether the client stops before it, and the rules' new states.

    None says that nobody stops. Clients side by side have a number each, of which Python knows nothing.
    """
    ends = None
    if phase.stop_rule is not None:
        found, stop = stopped(phase.stop_rule, probe, state.stop, now)
        state = state._replace(stop=stop)
        ends = None if is_plain(found) and not found.item() else found
    if phase.rate_rule is not None:
        rate, ruled = ruled_rate(phase.rate_rule, phase.lr, probe, state.rate, now)
        state = state._replace(rate=ruled)
    return rate, ends, state


def _unless_stopped(ends: Tensor, index: int, before: Carry, moved: Carry) -> Carry:
    """Of clients side by side: the carry after the step, or the one before it for those that stop."""
    chosen = tree_map(lambda old, new: torch.where(ends > 0, old, new), before, moved)
    return _still(chosen, index, moved.states[index])


def _still(carry: Carry, index: int, after: PhaseState) -> Carry:
    """The carry as it is; only the phase's stop rule has moved on."""
    return _with_state(carry, index, carry.states[index]._replace(stop=after.stop))


def _with_state(carry: Carry, index: int, state: PhaseState) -> Carry:
    return carry._replace(states=(*carry.states[:index], state, *carry.states[index + 1 :]))


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
