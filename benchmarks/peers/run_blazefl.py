"""BlazeFL: its process pool with tensors in shared memory, two processes.

`python -m benchmarks.peers.run_blazefl W1`. BlazeFL forks a pool from this process in every round, so what is loaded
here is there without being sent. Its other trainer, threads, needs a Python without the interpreter lock.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from blazefl.core import (
    BaseServerHandler,
    IPCMode,
    ProcessPoolClientTrainer,
    SHMHandle,
    deserialize_model,
    serialize_model,
)
from torch import Tensor

from benchmarks.handwritten import cohort
from benchmarks.peers.plan import batches, first_model, opened, tensor
from benchmarks.peers.turns import Turns, serve
from benchmarks.workloads import Workload, by_name

WORKERS = 2
INHERITED: dict[str, Any] = {}
"""Model, optimizer and data, made before the pools are forked."""


@dataclass
class Down:
    """The model as BlazeFL sends it, and the round."""

    parameters: Tensor
    number: int


@dataclass
class Up:
    """A client's model."""

    parameters: Tensor | SHMHandle


class Trainer(ProcessPoolClientTrainer[Up, Down, int]):
    """A client is its number; everything else is inherited."""

    def __init__(self) -> None:
        self.num_parallels, self.device, self.device_count = WORKERS, "cpu", 0
        self.share_dir, self.ipc_mode = Path(), IPCMode.SHARED_MEMORY
        self.cache: list[Up] = []
        self.manager = mp.Manager()
        self.stop_event = self.manager.Event()

    def get_client_config(self, cid: int) -> int:
        return cid

    def prepare_uplink_package_buffer(self) -> Up:
        return Up(torch.empty_like(INHERITED["first"]))

    def uplink_package(self) -> list[Up]:
        package, self.cache = self.cache, []
        return package

    @staticmethod
    def worker(  # type: ignore[override]
        config: int, payload: Down, device: str, stop_event: threading.Event, *, shm_buffer: Up | None = None
    ) -> Up:
        model, optimizer = INHERITED["model"], INHERITED["optimizer"]
        deserialize_model(model, payload.parameters)
        for x, y in batches(INHERITED["workload"], *INHERITED["columns"], config, payload.number):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        assert shm_buffer is not None and isinstance(shm_buffer.parameters, Tensor)
        shm_buffer.parameters.copy_(serialize_model(model))
        return Up(SHMHandle())


class Handler(BaseServerHandler[Up, Down]):
    """Federated averaging with the agreed cohorts."""

    def __init__(self, workload: Workload, turns: Turns) -> None:
        self.workload, self.turns, self.number = workload, turns, 0
        self.parameters = INHERITED["first"].clone()

    def downlink_package(self) -> Down:
        return Down(self.parameters, self.number)

    def sample_clients(self) -> list[int]:
        chosen: list[int] = cohort(self.workload, self.number).tolist()
        return chosen

    def if_stop(self) -> bool:
        return not self.turns.begin(self.weights)

    def weights(self) -> list[Any]:
        deserialize_model(INHERITED["model"], self.parameters)
        return [p.detach().numpy() for p in INHERITED["model"].parameters()]

    def load(self, payload: Up) -> bool:
        raise NotImplementedError

    def global_update(self, buffer: list[Up]) -> None:
        total = torch.zeros_like(self.parameters)
        for package in buffer:
            total += package.parameters
        self.parameters = total / len(buffer)
        self.turns.done(self.sample_clients())
        self.number += 1


def runner(turns: Turns) -> None:
    """Take turns with the driver."""
    torch.set_num_threads(1)
    workload = by_name(sys.argv[1])
    model = first_model(workload)
    INHERITED.update(
        workload=workload,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=workload.lr),
        columns=[tensor(column) for column in opened(workload)],
        first=serialize_model(model),
    )
    handler, trainer = Handler(workload, turns), Trainer()
    turns.ready(f"process pool, shared memory, {WORKERS} processes", "blazefl", "torch")
    while not handler.if_stop():
        trainer.local_process(handler.downlink_package(), handler.sample_clients())
        handler.global_update(trainer.uplink_package())


if __name__ == "__main__":
    serve(runner)
