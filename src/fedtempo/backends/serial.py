"""The serial backend: one client after the other, one step after the other. The reference for all others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from fedtempo.backends.block import Backend, Trained
from fedtempo.data.batches import Batching, BatchRows
from fedtempo.errors import TrainingError
from fedtempo.federation import Federation
from fedtempo.local import Carry, ClientProgram, Stage, by_autograd, places
from fedtempo.objectives import Received
from fedtempo.params import Params
from fedtempo.randomness import client_keys, scramble
from fedtempo.schedules import Now
from fedtempo.tasks import Batch


def train(
    federation: Federation,
    program: ClientProgram,
    received: Received,
    now: Now,
    clients: np.ndarray,
    personal: list[Params],
) -> Iterator[Trained]:
    """Train clients one by one."""
    for client, own in zip(clients.tolist(), personal, strict=True):
        yield _train_client(federation, program, received, now, client, own)


def _train_client(
    federation: Federation, program: ClientProgram, received: Received, now: Now, client: int, personal: Params
) -> Trained:
    carry = program.init(received, personal)
    total, steps, samples, shared_samples = torch.zeros((), dtype=torch.float64), 0, 0, 0
    data = federation.client_rows(client)
    for stage in program.stages:
        try:
            carry, loss, taken, seen = _run_stage(federation, stage, received, now, client, carry, data)
        except (RuntimeError, ValueError, IndexError) as error:
            raise TrainingError(f"client {federation.data.name_of(client)}, round {now.round}: {error}") from error
        total, steps, samples = total + loss.cpu(), steps + taken, samples + seen
        shared_samples += seen if stage.trained & federation.trained_names else 0
    return Trained(
        clients=np.array([client]),
        carry=carry,
        loss=(total / max(steps, 1)).reshape(1),
        steps=np.array([steps]),
        samples=np.array([samples]),
        shared_samples=np.array([shared_samples]),
        stacked=False,
        shapes=[],
    )


def _run_stage(
    federation: Federation, stage: Stage, received: Received, now: Now, client: int, carry: Carry, data: Batch
) -> tuple[Carry, torch.Tensor, int, int]:
    batching = stage.batching(federation.batching)
    samples = int(federation.sizes[client])
    start, count = stage.rows(samples)
    data = {n: t[start : start + count] for n, t in data.items()} if count < samples else data
    here = places(stage, now, samples, federation.batching)
    if stage.needs_all_rows(len(here), count, batching):
        with torch.no_grad():
            carry, data = stage.enter(received, carry, data)
    keys = client_keys(federation.seed, np.array([client]), "batches", now.round)
    rows = BatchRows(batching, keys, np.array([count]))
    losses, seen = [torch.zeros((), dtype=torch.float64, device=federation.device)], 0
    for step, place in enumerate(here):
        batch = _batch(data, rows, batching, step // stage.phase.repeat)
        if federation.network.dropout:
            batch["_key"] = torch.tensor(
                int(dropout_keys(federation, np.array([client]), now, step)[0]), device=federation.device
            )
        carry, loss = stage.step(by_autograd, received, carry, batch, place)
        losses.append(loss.to(torch.float64))
        seen += batching.length(count, step // stage.phase.repeat)
    return carry, torch.stack(losses).sum(), len(here), seen


def _batch(data: Batch, rows: BatchRows, batching: Batching, draw: int) -> Batch:
    if batching.size is None:
        return dict(data)
    index = torch.from_numpy(rows.of_first(draw))
    return {n: t.index_select(0, index.to(t.device)) for n, t in data.items()}


def dropout_keys(federation: Federation, clients: np.ndarray, now: Now, step: int) -> np.ndarray:
    """A key per client for the masks of one step."""
    return scramble(client_keys(federation.seed, clients, "dropout", now.round) + np.int64(step))


serial = Backend("serial", train)
