"""The serial backend: one client after the other, one step after the other.

It is the reference: all other backends must agree with it. Read `_run_stage` to see what a client does in which order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import numpy as np
import torch

from fedtempo.backends.backend import Backend, Trained
from fedtempo.client import overwriting
from fedtempo.client.gradients import GradientOf, by_autograd
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.client.program import ClientProgram, Stage
from fedtempo.data.augment import step_keys
from fedtempo.data.batches import Batching, BatchRows
from fedtempo.errors import FedTempoError, TrainingError
from fedtempo.federation.problem import Problem
from fedtempo.params import Params, tree_map
from fedtempo.randomness import client_keys, scramble
from fedtempo.schedules import Now
from fedtempo.support.user_errors import what_failed
from fedtempo.tasks import Batch

COPIED_BYTES = 2**22
"""Bytes of a client's batches that are copied at once."""
SENT_AHEAD = 64
"""Steps whose row numbers and keys go to a device together."""
CACHE_LINE = 64
"""Bytes at whose multiples torch allocates tensors."""


def train(
    problem: Problem,
    program: ClientProgram,
    received: Received,
    now: Now,
    clients: np.ndarray,
    personal: list[Params],
) -> Iterator[Trained]:
    """Train clients one by one, with convolutions in the memory layout that is fastest for them."""
    # Convert the received model once for the whole block, not once per client.
    laid_out = problem.network.channels_last
    here = Received(laid_out(received.shared), received.extra)

    def gradient(stage: Stage) -> GradientOf:
        way = by_autograd if stage.plain is None else stage.plain.alone
        if not problem.network.kernels:
            return way
        # A step may return kernels in the default layout; convolutions are slower there, so put them back each time.
        return lambda value_of, params, frozen, batch: way(value_of, laid_out(params), frozen, batch)

    for client, place, own in _in_turn(problem, now, clients, personal):
        yield _train_client(problem, program, gradient, here, place, client, laid_out(own))


def train_without_fast_paths(
    problem: Problem,
    program: ClientProgram,
    received: Received,
    now: Now,
    clients: np.ndarray,
    personal: list[Params],
) -> Iterator[Trained]:
    """Train clients one by one in torch's default layout, with torch's tape at every step."""
    for client, place, own in _in_turn(problem, now, clients, personal):
        yield _train_client(problem, program, lambda stage: by_autograd, received, place, client, own)


def _in_turn(
    problem: Problem, now: Now, clients: np.ndarray, personal: list[Params]
) -> Iterator[tuple[int, Now, Params]]:
    """Clients with their positions and what they keep."""
    return zip(clients.tolist(), problem.places(now, clients, personal), personal, strict=True)


def _train_client(
    problem: Problem,
    program: ClientProgram,
    gradient: Callable[[Stage], GradientOf],
    received: Received,
    now: Now,
    client: int,
    personal: Params,
) -> Trained:
    carry = program.init(received, personal)
    total = torch.zeros((), dtype=torch.float64, device=problem.device)
    steps: int | torch.Tensor = 0
    samples: list[np.ndarray | torch.Tensor] = []
    data = problem.client_rows(client)
    for stage in program.stages:
        try:
            before = int(steps) if now.deadline else 0
            carry, loss, taken, seen = _run_stage(
                problem, stage, gradient(stage), received, now, client, carry, data, before
            )
        except FedTempoError:
            raise
        # The model is the user's code and may raise anything. The error has to name the client and the round.
        except Exception as error:
            what = what_failed(error)
            raise TrainingError(f"client {problem.data.name_of(client)}, round {now.round}: {what}") from error
        total, steps = total + loss, steps + taken
        samples.append(seen.reshape(1) if isinstance(seen, torch.Tensor) else np.array([seen]))
    return Trained(
        clients=np.array([client]),
        carry=carry,
        loss=(total / (steps.clamp(min=1) if isinstance(steps, torch.Tensor) else max(steps, 1))).reshape(1),
        samples=tuple(samples),
        stacked=False,
        shapes=[],
    )


def _run_stage(
    problem: Problem,
    stage: Stage,
    gradient: GradientOf,
    received: Received,
    now: Now,
    client: int,
    carry: Carry,
    data: Batch,
    before: int,
) -> tuple[Carry, torch.Tensor, int | torch.Tensor, int | torch.Tensor]:
    """One stage of one client, which has taken `before` steps in earlier stages of this round.

    Returns the carry, the sum of the losses, the steps taken and the samples seen. The last two are tensors where only
    the device knows when the client stopped.
    """
    batching = stage.phase.batching(problem.batching)
    samples = int(problem.sizes[client])
    # A phase may see only half of the rows (FedRecon). Row numbers below count from the start of that half.
    start, count = stage.phase.rows(samples)
    data = {n: t[start : start + count] for n, t in data.items()} if count < samples else data
    here = stage.positions(now, samples, problem.batching)
    if now.deadline:
        here = until_deadline(here, now, before)
    if stage.needs_all_rows(len(here), count, batching):
        # What this pass computes (a frozen body's features, FedEM's mixture) stays constant, so it needs no gradients.
        with torch.no_grad():
            carry, data = stage.enter(received, carry, data)
    # Batches depend on seed, client and round alone: neither on the backend nor on who trained before.
    keys = client_keys(problem.seed, np.array([client]), "batches", *now.path)
    draws = -(-len(here) // stage.phase.repeat)
    drawn = _drawn(data, BatchRows(batching, keys, np.array([count])), batching, count, draws)
    on_device = problem.device != "cpu"
    asks = stage.phase.until is not None or stage.phase.stop_rule is not None
    keys_of = _keys_of_steps(problem, client, now, len(here))
    losses: list[torch.Tensor] = []
    going: list[torch.Tensor] = []
    lengths: list[int] = []
    for step, place in enumerate(here):
        goes_on = _goes_on(stage, received, carry) if asks else None
        if goes_on is not None and (not on_device or _is_asked(step)) and not bool(goes_on):
            break
        if step % stage.phase.repeat == 0:
            rows, length = next(drawn)
        batch = _drawn_for(problem, rows, next(keys_of))
        may_overwrite = overwriting.allowed(step) and not (on_device and asks)
        stepped, loss = stage.step(gradient, received, carry, batch, place, may_overwrite)
        # Losses stay tensors until the end: reading a number would wait for the device at every step.
        if goes_on is not None and on_device:
            alive = goes_on
            carry = tree_map(lambda new, old, alive=alive: torch.where(alive, new, old), stepped, carry)
            loss = torch.where(alive, loss, 0.0)
            going.append(alive)
        else:
            carry = stepped
        losses.append(loss)
        lengths.append(length)
    if not losses:
        return carry, torch.zeros((), dtype=torch.float64, device=problem.device), 0, 0
    total = torch.stack(losses).to(torch.float64).sum()
    if not going:
        return carry, total, len(losses), sum(lengths)
    taken = torch.stack(going)
    return carry, total, taken.sum(), (taken * torch.tensor(lengths, device=taken.device)).sum()


def _goes_on(stage: Stage, received: Received, carry: Carry) -> torch.Tensor | None:
    """Whether the client takes another step of a stage whose length depends on numbers; None of any other stage."""
    if stage.phase.until is not None:
        return torch.logical_not(torch.as_tensor(stage.phase.until(received, carry)))
    stopped = stage.stopped(carry)
    return None if stopped is None else stopped == 0


def _is_asked(step: int) -> bool:
    """Whether a device is asked before this step if the client goes on: before steps 0, 1, 2, 4, 8 and so on.

    To ask is to wait for it. Steps after the end change nothing, and there are at most as many as before it.
    """
    return not step & (step - 1)


def _keys_of_steps(problem: Problem, client: int, now: Now, steps: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """For each step the keys of its augmentation and of its dropout masks, as far as the run has them."""
    one, draws = np.array([client]), list[Callable[[int], np.ndarray]]()
    if problem.augment is not None:
        draws.append(lambda step: step_keys(problem.seed, one, now.path, step).numpy())
    if problem.network.dropout:
        # Dropout takes its masks from this key, so they are the same in every backend.
        draws.append(lambda step: dropout_keys(problem, one, now, step))
    if not draws:
        yield from repeat((), steps)
    for first in range(0, steps if draws else 0, SENT_AHEAD):
        ahead = range(first, min(first + SENT_AHEAD, steps))
        keys = [torch.from_numpy(np.stack([draw(step) for step in ahead])).to(problem.device) for draw in draws]
        yield from zip(*keys, strict=True)


def _drawn_for(problem: Problem, rows: Batch, keys: tuple[torch.Tensor, ...]) -> Batch:
    """The batch of one step: augmented, and with the key of its dropout masks."""
    batch = dict(rows)
    if problem.augment is not None:
        batch = problem.augment.one(batch, keys[0])
    if problem.network.dropout:
        batch["_key"] = keys[-1][0]
    return batch


def until_deadline(planned: Sequence[Now], now: Now, before: int) -> Sequence[Now]:
    """The steps of a stage that a client takes before its deadline, after `before` steps of earlier stages."""
    most = now.most_steps
    return planned if most is None else planned[: max(0, most - before)]


def _drawn(data: Batch, rows: BatchRows, batching: Batching, count: int, draws: int) -> Iterator[tuple[Batch, int]]:
    """A client's batches in order, with their numbers of rows.

    On the CPU several are copied at once and then cut apart: one copy serves many steps. A device gets the row numbers
    of many steps at once.
    """
    if batching.size is None:
        yield from repeat((data, count), draws)
        return
    device = next(iter(data.values())).device
    together = _copied_together(data, batching.size) if device.type == "cpu" else SENT_AHEAD
    for first in range(0, draws, together):
        chosen = [rows.of_first(draw) for draw in range(first, min(first + together, draws))]
        index = torch.from_numpy(np.concatenate(chosen) if len(chosen) > 1 else chosen[0])
        lengths = [len(rows) for rows in chosen]
        if device.type != "cpu":
            for place, length in zip(torch.split(index.to(device), lengths), lengths, strict=True):
                yield {name: t.index_select(0, place) for name, t in data.items()}, length
            continue
        copied = [torch.split(t.index_select(0, index), lengths) for t in data.values()]
        batches = (dict(zip(data, batch, strict=True)) for batch in zip(*copied, strict=True))
        yield from zip(batches, lengths, strict=True)


def _copied_together(data: Batch, size: int) -> int:
    """How many batches are copied at once: what fits into the processor's cache beside the model.

    The libraries' sums may depend on where in a cache line a tensor starts. So every batch has to start at the start of
    one, as if it had been copied alone.
    """
    widths = {name: t.nbytes // max(1, len(t)) for name, t in data.items()}
    if any(widths[name] % CACHE_LINE for name, t in data.items() if t.is_floating_point()):
        return 1
    return max(1, COPIED_BYTES // max(1, size * sum(widths.values())))


def dropout_keys(problem: Problem, clients: np.ndarray, now: Now, step: int) -> np.ndarray:
    """A key per client for the masks of one step."""
    return scramble(client_keys(problem.seed, clients, "dropout", *now.path) + np.int64(step))


serial = Backend("serial", train, stacks=False)
plain_serial = Backend("serial, without fast paths", train_without_fast_paths, stacks=False)
"""The serial backend without its fast paths: for comparisons, and for models that channels-last slows down."""
