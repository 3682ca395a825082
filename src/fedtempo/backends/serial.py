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
from fedtempo.params import Params
from fedtempo.randomness import client_keys, scramble
from fedtempo.schedules import Now
from fedtempo.support.user_errors import what_failed
from fedtempo.tasks import Batch

COPIED_BYTES = 2**22
"""Bytes of a client's batches that are copied at once."""
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
    total, steps, samples = torch.zeros((), dtype=torch.float64), 0, []
    data = problem.client_rows(client)
    for stage in program.stages:
        try:
            carry, loss, taken, seen = _run_stage(
                problem, stage, gradient(stage), received, now, client, carry, data, steps
            )
        except FedTempoError:
            raise
        # The model is the user's code and may raise anything. The error has to name the client and the round.
        except Exception as error:
            what = what_failed(error)
            raise TrainingError(f"client {problem.data.name_of(client)}, round {now.round}: {what}") from error
        total, steps = total + loss.cpu(), steps + taken
        samples.append(np.array([seen]))
    return Trained(
        clients=np.array([client]),
        carry=carry,
        loss=(total / max(steps, 1)).reshape(1),
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
) -> tuple[Carry, torch.Tensor, int, int]:
    """One stage of one client, which has taken `before` steps in earlier stages of this round."""
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
    losses: list[torch.Tensor] = []
    seen = 0
    for step, place in enumerate(here):
        if stage.phase.until is not None and bool(stage.phase.until(received, carry)):
            break
        if step % stage.phase.repeat == 0:
            rows, length = next(drawn)
        batch = _drawn_for(problem, rows, client, now, step)
        carry, loss = stage.step(gradient, received, carry, batch, place, overwriting.allowed(step))
        # Losses stay tensors until the end: reading a number would wait for the device at every step.
        losses.append(loss)
        seen += length
        if stage.phase.stop_rule is not None and bool(stage.stopped(carry)):
            break
    total = torch.stack(losses).to(torch.float64).sum() if losses else torch.zeros((), dtype=torch.float64)
    return carry, total, len(losses), seen


def _drawn_for(problem: Problem, rows: Batch, client: int, now: Now, step: int) -> Batch:
    """The batch of one step: augmented, and with the key of its dropout masks."""
    batch = dict(rows)
    if problem.augment is not None:
        key = step_keys(problem.seed, np.array([client]), now.path, step).to(problem.device)
        batch = problem.augment.one(batch, key)
    if problem.network.dropout:
        # Dropout takes its masks from this key, so they are the same in every backend.
        (masks,) = dropout_keys(problem, np.array([client]), now, step)
        batch["_key"] = torch.tensor(int(masks), device=problem.device)
    return batch


def until_deadline(planned: Sequence[Now], now: Now, before: int) -> Sequence[Now]:
    """The steps of a stage that a client takes before its deadline, after `before` steps of earlier stages."""
    most = now.most_steps
    return planned if most is None else planned[: max(0, most - before)]


def _drawn(data: Batch, rows: BatchRows, batching: Batching, count: int, draws: int) -> Iterator[tuple[Batch, int]]:
    """A client's batches in order, with their numbers of rows.

    Several are copied at once and then cut apart: one copy serves many steps.
    """
    if batching.size is None:
        yield from repeat((data, count), draws)
        return
    together = _copied_together(data, batching.size)
    for first in range(0, draws, together):
        chosen = [rows.of_first(draw) for draw in range(first, min(first + together, draws))]
        index = torch.from_numpy(np.concatenate(chosen) if len(chosen) > 1 else chosen[0])
        lengths = [len(rows) for rows in chosen]
        copied = [torch.split(t.index_select(0, index.to(t.device)), lengths) for t in data.values()]
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
