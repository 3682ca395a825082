"""The problem: a model, data and a task. It does not know which algorithm solves it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import nn

from fedtempo.client.network import Network
from fedtempo.client.optimizer_state import LAST_LOSS
from fedtempo.data.augment import Augment
from fedtempo.data.batches import Batching
from fedtempo.data.federated import FederatedData
from fedtempo.data.parts import PARTS
from fedtempo.devices import RunningDevices
from fedtempo.federation.device_rows import DeviceRows
from fedtempo.models.weights import put_on
from fedtempo.params import Params
from fedtempo.schedules import Now
from fedtempo.tasks import Batch, Meaning, Task


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
    head_of_body: bool = True
    """Whether a model with a body and a head is nothing but head(body(inputs))."""
    outputs_per_row: int = 1
    """How many numbers the model returns for a row."""
    outputs_are: Meaning = "classes"
    """What the model's outputs mean, for algorithms that mix the outputs of several models."""
    autocast: bool = False
    """Whether the model computes in bfloat16 where torch holds that safe."""
    augment: Augment | None = None
    """How training batches are changed at random before each step."""
    devices: RunningDevices | None = None
    """What clients compute and send with; None where time does not matter."""
    sees_clients: bool = False
    """Whether schedules may tell clients of one size apart, so that every client has a position of its own."""
    keeps_loss: bool = False
    """Whether clients keep their last loss, because a schedule looks at it."""
    device_rows: DeviceRows = field(default_factory=DeviceRows, compare=False)
    """The rows' copy on an accelerator, which stays there between rounds."""

    @cached_property
    def network(self) -> Network:
        """The model as a pure function of its tensors."""
        return self._fitted(Network(put_on(self.model, self.device, self.dtype)))

    @cached_property
    def drawable(self) -> nn.Module:
        """The model where weights are drawn, which is the CPU: a device has a generator and numbers of its own."""
        return self.model if self.device == "cpu" else put_on(copy.deepcopy(self.model), "cpu")

    def known_as(self, **facts: object) -> Problem:
        """The same problem with what trials have shown about its model and its schedules."""
        known = replace(self, **facts)  # type: ignore[arg-type]
        # Code of the user may remember a trial, and so may a hook: a run starts from new copies of it. Layers of torch
        # and of ours remember nothing, and to copy them takes longer than some steps of a small model.
        made = vars(self).get("network")
        if isinstance(made, Network) and made.is_known() and not made.hooked():
            vars(known)["network"] = known._fitted(copy.copy(made))
        return known

    def _fitted(self, network: Network) -> Network:
        """The network with what this problem knows about the model."""
        network.dropout = network.dropout or self.draws_masks
        network.autocast = self.autocast
        network.outputs_are = self.outputs_are
        network.head_of_body = network.has_head and self.head_of_body
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

    @property
    def median_client(self) -> np.ndarray:
        """The number of a client with a median number of rows, to stand for all where one is shown."""
        clients = self.data.clients
        order = np.argsort(self.sizes[clients], kind="stable")
        return np.asarray(clients[order[len(order) // 2 : len(order) // 2 + 1]])

    def places(self, now: Now, clients: np.ndarray, personal: Sequence[Params] = ()) -> list[Now]:
        """Each client's own position in a round; the common one where no schedule can tell clients apart."""
        if not self.sees_clients and not now.deadline:
            return [now] * len(clients)
        speed = transfer = np.zeros(len(clients))
        if self.devices is not None:
            traits, size = self.devices.traits(clients), self.batching.size
            rows = self.sizes[clients] if size is None else np.minimum(self.sizes[clients], size)
            speed, transfer = self.devices.seconds_per_step(traits, rows), self.devices.transfer(traits)
        losses = [float(own[LAST_LOSS]) if LAST_LOSS in own else 0.0 for own in personal] or [0.0] * len(clients)
        columns = zip(clients.tolist(), speed.tolist(), transfer.tolist(), losses, strict=True)
        return [
            replace(now, client=client, seconds_per_step=seconds, transfer=both, last_loss=loss)
            for client, seconds, both, loss in columns
        ]

    def rows(self, clients: np.ndarray, local: np.ndarray, part: str = "train") -> Batch:
        """Rows of clients by their number inside the client; `local` has shape (clients, rows)."""
        positions = self.data.bounds[clients, PARTS[part]][:, None] + local
        where = positions if self.data.order is None else self.data.order[positions]
        return self._taken(where)

    def client_rows(self, client: int, part: str = "train") -> Batch:
        """All rows of one client."""
        if self.device == "cpu":
            return self._meant(self.data.client(client, part, self.dtype))
        return self.device_rows.client(self.data, client, part, self.dtype, self.device)

    def _taken(self, rows: np.ndarray) -> Batch:
        """Rows of the columns, where the model is."""
        if self.device == "cpu":
            return self._meant(self.data.take(rows, self.dtype))
        return self._meant(self.device_rows.take(self.data, rows, self.dtype, self.device))

    def _meant(self, batch: Batch) -> Batch:
        """The batch with the task's targets; a model that makes its own loss gets the column y as it is."""
        if self.task.targets is None or self.task.own:
            return batch
        return {**batch, "y": self.task.targets(batch)}

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
