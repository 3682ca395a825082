"""What every contender is given: the same rows on disk, the same first weights, the same batches in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.handwritten import _tensor as tensor
from benchmarks.workloads import FOLDER, Workload, arrays

__all__ = ["batches", "first_model", "opened", "rows_of", "tensor"]


def opened(workload: Workload, folder: Path = FOLDER) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of all clients, mapped from files that every process shares; written when first asked for."""
    if workload.mapped:
        return arrays(workload, folder)
    places = [folder / f"{workload.name}-{column}.npy" for column in ("inputs", "labels")]
    if not all(place.exists() for place in places):
        folder.mkdir(parents=True, exist_ok=True)
        for place, values in zip(places, arrays(workload, folder), strict=True):
            unfinished = place.with_name(f"unfinished-{place.name}")
            np.save(unfinished, values)
            unfinished.rename(place)
    inputs, labels = (np.load(place, mmap_mode="r") for place in places)
    return inputs, labels


def first_model(workload: Workload) -> nn.Module:
    """The model with the weights everybody starts from."""
    torch.manual_seed(0)
    return workload.model()


def rows_of(workload: Workload, client: int, number: int) -> Iterator[Tensor]:
    """The rows of each of a client's batches in this round: the hand-written loop's order, short last batches too."""
    generator = torch.Generator().manual_seed(number * 1_000_003 + client)
    order, place = torch.randperm(workload.samples, generator=generator), 0
    for _ in range(workload.steps):
        if place >= workload.samples:
            order, place = torch.randperm(workload.samples, generator=generator), 0
        yield order[place : place + workload.batch]
        place += workload.batch


def batches(
    workload: Workload, inputs: Tensor, labels: Tensor, client: int, number: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """A client's batches in this round."""
    mine = slice(client * workload.samples, (client + 1) * workload.samples)
    own_inputs, own_labels = inputs[mine], labels[mine]
    for rows in rows_of(workload, client, number):
        yield own_inputs[rows], own_labels[rows]
