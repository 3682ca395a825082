"""The vectorised backend: a block of clients takes each step together, by `torch.func.vmap`.

The step is the one of `client/local_step.py`, written for one client. Clients differ in their number of rows and steps,
and most of this file is about that: short batches are padded (`padding.py`), and clients that have finished stay in the
stack unchanged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedtempo.backends.backend import Backend, Trained, side_by_side
from fedtempo.backends.memory import is_out_of_memory
from fedtempo.backends.padding import stack_padded, widened
from fedtempo.backends.serial import dropout_keys, serial, until_deadline
from fedtempo.client import overwriting
from fedtempo.client.gradients import by_transform, in_stack
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.client.program import ClientProgram, Stage
from fedtempo.data.augment import step_keys
from fedtempo.data.batches import BatchRows
from fedtempo.errors import FedTempoError, TrainingError
from fedtempo.federation.problem import Problem
from fedtempo.params import Params, tree_map
from fedtempo.randomness import client_keys
from fedtempo.schedules import LanePosition, LanesDifferError, Now, Position
from fedtempo.support.user_errors import what_failed
from fedtempo.tasks import Batch


class Lanes(NamedTuple):
    """What all steps of a block share. A lane is a client's place in the stack."""

    problem: Problem
    received: Received
    now: Now
    clients: np.ndarray
    sizes: np.ndarray
    outputs: Tensor | None
    """True output counts, where heads of different sizes were padded."""
    places: list[Now]
    """Each client's position before its first step."""
    sent: dict[tuple[object, ...], Tensor]
    """What `there` has sent to a device."""

    def there(self, array: np.ndarray) -> Tensor:
        """A small array where the model is. A device gets an array once, however many steps ask for it."""
        if self.problem.device == "cpu":
            return torch.from_numpy(np.ascontiguousarray(array))
        key = array.shape, array.dtype, array.tobytes()
        if key not in self.sent:
            self.sent[key] = torch.from_numpy(np.ascontiguousarray(array)).to(self.problem.device)
        return self.sent[key]

    def classes(self) -> tuple[list[tuple[int, Now]], np.ndarray]:
        """Sizes and positions that some clients share, and which of them each lane has."""
        problem = self.problem
        if problem.sees_clients or self.now.deadline:
            return list(zip(self.sizes.tolist(), self.places, strict=True)), np.arange(len(self.sizes))
        # Clients of one size take the same steps at the same positions, so schedules are evaluated once per size.
        sizes, members = np.unique(self.sizes, return_inverse=True)
        return [(size, self.now) for size in sizes.tolist()], members


class Tally(NamedTuple):
    """Sums over steps, one entry per lane; `samples` has one array per stage."""

    loss: Tensor
    steps: np.ndarray
    samples: tuple[np.ndarray, ...] = ()


def train(
    problem: Problem,
    program: ClientProgram,
    received: Received,
    now: Now,
    clients: np.ndarray,
    personal: list[Params],
) -> Iterator[Trained]:
    """Train all clients side by side; what comes out is stacked."""
    if not len(clients):
        return
    stacked, shapes = stack_padded(personal)
    padded = bool(shapes) and problem.data.outputs is not None
    outputs = torch.as_tensor(problem.data.outputs[clients]) if padded else None  # type: ignore[index]
    places = problem.places(now, clients, personal)
    lanes = Lanes(problem, received, now, clients, problem.sizes[clients], outputs, places, {})
    carry = _first_carry(program, received, stacked, len(clients), problem.device)
    zeros = np.zeros(len(clients), dtype=np.int64)
    tally = Tally(torch.zeros(len(clients), dtype=torch.float64, device=problem.device), zeros)
    for stage in program.stages:
        try:
            carry, tally = _run_stage(lanes, stage, carry, tally)
        except FedTempoError:
            raise
        # The model is the user's code and may raise anything. Which client it was cannot be told inside `vmap`: it is
        # the first that fails by itself. Where memory runs out, nothing is wrong with any.
        except Exception as error:
            if not is_out_of_memory(error):
                for _ in serial.train(problem, program, received, now, clients, personal):
                    pass
            if len(clients) == 1 and is_out_of_memory(error):
                one = f"client {problem.data.name_of(int(clients[0]))}, round {now.round}"
                raise TrainingError(f"{one}: {what_failed(error)}") from error
            where = f"clients {clients[0]} to {clients[-1]}, round {now.round}"
            hint = "backend='serial' runs them one by one"
            raise TrainingError(f"{where}, side by side: {what_failed(error)}. {hint}.") from error
    loss = tally.loss / torch.from_numpy(np.maximum(tally.steps, 1)).to(problem.device)
    yield Trained(clients, carry, loss, tally.samples, True, shapes)


def _first_carry(program: ClientProgram, received: Received, stacked: Params, lanes: int, device: str) -> Carry:
    """What every client starts from; the shared tensors may be one copy that is seen once for each client."""
    if program.elementwise:
        return program.init(
            received._replace(shared={n: t.expand(lanes, *t.shape) for n, t in received.shared.items()}), stacked
        )
    # `vmap` needs something to map over, even where clients keep nothing: the index is that.
    carry: Carry = vmap(lambda lane, own: program.init(received, own))(torch.arange(lanes, device=device), stacked)
    return carry


def _run_stage(lanes: Lanes, stage: Stage, carry: Carry, tally: Tally) -> tuple[Carry, Tally]:
    """One stage of all clients: as `serial._run_stage`, with a loop over steps that every client is in."""
    problem, now = lanes.problem, lanes.now
    batching = stage.phase.batching(problem.batching)
    classes, members = lanes.classes()
    starts, counts = np.array([stage.phase.rows(size) for size, _ in classes])[members].T
    timelines = _timelines(problem, stage, classes, members, tally.steps)
    steps = np.array([len(t) for t in timelines])[members]
    data = None
    if any(
        stage.needs_all_rows(len(timeline), stage.phase.rows(size)[1], batching)
        for timeline, (size, _) in zip(timelines, classes, strict=True)
    ):
        carry, data = _enter(lanes, stage, carry, starts, counts)
    rows = BatchRows(batching, client_keys(problem.seed, lanes.clients, "batches", *now.path), counts)
    loss, samples, taken = tally.loss, np.zeros_like(counts), np.zeros_like(steps)
    # A batch of all rows is the same at every step, unless something is drawn for it.
    repeats = batching.size is None and problem.augment is None and not problem.network.dropout
    kept: dict[bytes, Batch] = {}
    for step in range(int(steps.max())):
        # Clients that have finished, or stopped early, stay in the stack, but no longer step.
        active = np.flatnonzero((steps > step) & _going_on(lanes, stage, carry))
        if not len(active):
            break
        if not repeats or step == 0:
            local, lengths = rows.at(step // stage.phase.repeat)
        samples[active] += lengths[active]
        taken[active] += 1
        last, kept = kept, {}
        for group in _groups(active, lengths, problem.pads_batches):
            who = group.tobytes()
            batch = last[who] if who in last else _batch(lanes, data, starts, local, lengths, group, step)
            if repeats:
                kept[who] = batch
            # A class that has finished is at its last position, which no client in the group looks up.
            here = [timeline[min(step, len(timeline) - 1)] if len(timeline) else now for timeline in timelines]
            # Before the first step the carry may be one model that is seen once for each client.
            may = overwriting.allowed(step)
            carry, losses = _step(lanes, stage, carry, batch, here, members, group, may_overwrite=may)
            loss = loss.index_add(0, lanes.there(group), losses.to(torch.float64))
    return carry, Tally(loss, tally.steps + taken, (*tally.samples, samples))


def _timelines(
    problem: Problem, stage: Stage, classes: list[tuple[int, Now]], members: np.ndarray, taken: np.ndarray
) -> list[Sequence[Now]]:
    """The positions of a stage's steps for each class of clients; `taken` are each client's steps in earlier stages."""
    # Only a deadline asks how many steps came before, and with a deadline every client is a class of its own.
    before = np.zeros(len(classes), dtype=np.int64)
    before[members] = taken
    return [
        until_deadline(stage.positions(place, size, problem.batching), place, int(steps))
        for (size, place), steps in zip(classes, before, strict=True)
    ]


def _going_on(lanes: Lanes, stage: Stage, carry: Carry) -> np.ndarray | bool:
    """Which clients have not stopped early."""
    if stage.phase.until is not None:
        ended = vmap(partial(stage.phase.until, lanes.received))(carry)
        going: np.ndarray = np.logical_not(ended.cpu().numpy())
        return going
    over = stage.stopped(carry)
    return True if over is None else over.cpu().numpy() == 0


def _groups(active: np.ndarray, lengths: np.ndarray, pads: bool) -> list[np.ndarray]:
    """Groups of clients that step together: all of them or, where padding changes results, one group per batch length.

    Padding changes results where rows of a batch influence each other, as in BatchNorm.
    """
    if pads:
        return [active]
    return [active[lengths[active] == length] for length in np.unique(lengths[active])]


def _enter(lanes: Lanes, stage: Stage, carry: Carry, starts: np.ndarray, counts: np.ndarray) -> tuple[Carry, Batch]:
    """The stage's pass over all rows of every client, padded to the longest client or grouped by length."""
    everybody = np.arange(len(counts))
    groups = _groups(everybody, counts, lanes.problem.pads_batches)
    entered = [_enter_group(lanes, stage, carry, starts, counts, group) for group in groups]
    if len(entered) == 1:
        return entered[0]
    width = int(counts.max())
    # Groups are ordered by length. `back` restores the order of the lanes.
    back = torch.as_tensor(np.argsort(np.concatenate(groups)), device=lanes.problem.device)
    kept = tree_map(lambda *parts: torch.cat(parts)[back], *(carry for carry, _ in entered))
    data = [{n: widened(t, width) for n, t in rows.items() if n != "_rows"} for _, rows in entered]
    return kept, {n: torch.cat([rows[n] for rows in data])[back] for n in data[0]}


def _enter_group(
    lanes: Lanes, stage: Stage, carry: Carry, starts: np.ndarray, counts: np.ndarray, group: np.ndarray
) -> tuple[Carry, Batch]:
    mine = counts[group]
    # Padding repeats the last row, so that it is a legal input; `_rows` keeps it out of the loss.
    local = np.minimum(np.arange(int(mine.max())), mine[:, None] - 1)
    data = _extended(lanes, lanes.problem.rows(lanes.clients[group], starts[group][:, None] + local), mine, group)
    if len(group) < len(counts):
        chosen = lanes.there(group)
        carry = tree_map(lambda t: t[chosen], carry)
    entered: tuple[Carry, Batch] = side_by_side(lambda c, d: stage.enter(lanes.received, c, d))(carry, data)
    return entered


def _extended(lanes: Lanes, batch: Batch, lengths: np.ndarray, group: np.ndarray) -> Batch:
    """The batch with the library's own columns: which rows count, which outputs exist."""
    width = next(iter(batch.values())).shape[1]
    device = lanes.problem.device
    if (lengths < width).any():
        batch["_rows"] = lanes.there(np.arange(width) < lengths[:, None])
    if lanes.outputs is not None:
        batch["_outputs"] = lanes.outputs[torch.from_numpy(group)].to(device)
    return batch


def _batch(
    lanes: Lanes,
    data: Batch | None,
    starts: np.ndarray,
    local: np.ndarray,
    lengths: np.ndarray,
    group: np.ndarray,
    step: int,
) -> Batch:
    problem = lanes.problem
    picked, counts = local[group][:, : int(lengths[group].max())], lengths[group]
    if data is None:
        batch = problem.rows(lanes.clients[group], starts[group][:, None] + picked)
    else:
        lane, row = lanes.there(group)[:, None], lanes.there(picked)
        batch = {n: t[lane, row] for n, t in data.items() if n not in ("_rows", "_outputs")}
    if problem.augment is not None:
        keys = step_keys(problem.seed, lanes.clients[group], lanes.now.path, step).to(problem.device)
        batch = problem.augment.lanes(batch, counts, keys)
    batch = _extended(lanes, batch, counts, group)
    if problem.network.dropout:
        batch["_key"] = torch.from_numpy(dropout_keys(problem, lanes.clients[group], lanes.now, step)).to(
            problem.device
        )
    return batch


def _step(
    lanes: Lanes,
    stage: Stage,
    carry: Carry,
    batch: Batch,
    here: list[Now],
    members: np.ndarray,
    group: np.ndarray,
    may_overwrite: bool,
) -> tuple[Carry, Tensor]:
    # Each lane looks up its schedule values by the size class of its client.
    index = lanes.there(members[group])
    plain = stage.plain
    one_by_one = in_stack(plain.together, plain.value_of) if plain and stage.probes_other_points else by_transform

    def one(lane: Tensor, mine: Carry, rows: Batch, known: Any) -> tuple[Carry, Tensor]:
        place: Position = here[0] if len(here) == 1 else LanePosition(tuple(here), lane)
        return stage.step((lambda *_: known) if known else one_by_one, lanes.received, mine, rows, place)

    def step(together: Carry) -> tuple[Carry, Tensor]:
        # A plain loss has a recorded gradient for the whole stack. It is computed outside `vmap` and handed in,
        # because it was recorded for stacked tensors and not for one lane. A step that asks for gradients at several
        # points cannot be handed one.
        known = (
            plain.together(plain.value_of, *stage.split(together), batch)
            if plain and not stage.probes_other_points
            else ()
        )
        if known and stage.needs_no_lanes:
            # `vmap` would take longer than the step: it takes the carry apart and puts it together again. Clients of
            # different sizes mostly have equal rates all the same. Whether they do shows only in the middle of the
            # step, which must not have overwritten anything by then.
            same_place = len(here) == 1
            place = here[0] if same_place else LanePosition(tuple(here))
            with contextlib.suppress(LanesDifferError):
                return stage.step(
                    lambda *_: known, lanes.received, together, batch, place, may_overwrite and same_place
                )
        moved, losses = vmap(one)(index, together, batch, known)
        return tree_map(_typed_like, together, moved), losses

    if len(group) == len(lanes.clients):
        return step(carry)
    # Only some clients step: take them out of the stack, and write them back afterwards.
    chosen = lanes.there(group)
    moved, losses = step(tree_map(lambda t: t[chosen], carry))
    return tree_map(lambda old, new: old.index_copy(0, chosen, new), carry, moved), losses


def _typed_like(before: Tensor, after: Tensor) -> Tensor:
    """A weight that is a single number has become one of 64 bits where a lane's own rate, which has 64, moved it."""
    return after if after.dtype == before.dtype else after.to(before.dtype)


vectorised = Backend("vectorised", train)
