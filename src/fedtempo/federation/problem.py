"""The problem: a model, data and a task. It does not know which algorithm solves it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn

from fedtempo.client.network import Network
from fedtempo.data.augment import Augment
from fedtempo.data.batches import Batching
from fedtempo.data.federated import FederatedData
from fedtempo.data.parts import PARTS
from fedtempo.schedules import Now
from fedtempo.tasks import Batch, Task


@dataclass(frozen=True)
class Problem:
    """What is to be learned, from whose rows, and how rows become batches. Nothing here changes during a run."""

    model: nn.Module
    data: FederatedData
    task: Task
    batching: Batching
    seed: int
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    draws_masks: bool = False
    """Whether training the model needs dropout keys."""
    pads_batches: bool = True
    """Whether batches of different lengths may be padded: rows do not influence each other, nor does a user's loss."""
    pads_scoring: bool = True
    """The same of predictions: whether a row's output stays what it is beside other rows."""
    autocast: bool = False
    """Whether the model computes in bfloat16 where torch holds that safe."""
    augment: Augment | None = None
    """How training batches are changed at random before each step."""

    @cached_property
    def network(self) -> Network:
        """The model as a pure function of its tensors."""
        network = Network(self.model.to(dtype=self.dtype, device=self.device))
        network.dropout = network.dropout or self.draws_masks
        network.autocast = self.autocast
        network.augmented = self.augment is not None
        return network

    @cached_property
    def sizes(self) -> np.ndarray:
        """Training rows of every client."""
        return self.data.sizes("train")

    @cached_property
    def total_samples(self) -> int:
        """Training rows of all training clients together."""
        return int(self.sizes[self.data.clients].sum())

    def rows(self, clients: np.ndarray, local: np.ndarray, part: str = "train") -> Batch:
        """Rows of clients by their number inside the client; `local` has shape (clients, rows)."""
        positions = self.data.bounds[clients, PARTS[part]][:, None] + local
        where = positions if self.data.order is None else self.data.order[positions]
        return self.to_device(self.data.take(where, self.dtype))

    def client_rows(self, client: int, part: str = "train") -> Batch:
        """All rows of one client."""
        return self.to_device(self.data.client(client, part, self.dtype))

    def to_device(self, batch: Batch) -> Batch:
        """The batch where the model is."""
        return batch if self.device == "cpu" else {n: t.to(self.device) for n, t in batch.items()}

    def now(self, round_number: int, cohort: float, loss_ratio: float = 1.0, plateaus: int = 0) -> Now:
        """The position of a round before its first step."""
        return Now(
            round=round_number,
            clients=len(self.data.clients),
            cohort=cohort,
            total_samples=self.total_samples,
            loss_ratio=loss_ratio,
            plateaus=plateaus,
        )
