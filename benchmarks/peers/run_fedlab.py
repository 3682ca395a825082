"""FedLab: a server and two processes that each simulate many clients, over its torch.distributed network.

`python -m benchmarks.peers.run_fedlab W1 [one]`; `one` keeps everything in one process (its standalone pipeline).
"""

from __future__ import annotations

import logging
import multiprocessing
import socket
import sys
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.peers import fedlab_import  # noqa: F401

# isort: split
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.client.manager import PassiveClientManager
from fedlab.core.coordinator import Coordinator
from fedlab.core.network import DistNetwork
from fedlab.core.server.manager import SynchronousServerManager
from fedlab.core.standalone import StandalonePipeline

from benchmarks.handwritten import cohort
from benchmarks.peers.plan import batches, first_model, opened, tensor
from benchmarks.peers.turns import Turns, serve
from benchmarks.workloads import Workload, by_name

WORKERS = 2


class Rows(FedDataset):
    """Every client's batches of a round in the agreed order."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.inputs, self.labels = (tensor(column) for column in opened(workload))
        self.number = -1

    def get_dataloader(self, id: int, batch_size: int) -> Iterator[Any]:
        return batches(self.workload, self.inputs, self.labels, id, self.number)


class Trainer(FedAvgSerialClientTrainer):
    """FedLab's own trainer; each call is the next round."""

    def local_process(self, payload: list[torch.Tensor], id_list: list[int]) -> None:
        self.dataset.number += 1
        super().local_process(payload, id_list)


class Handler(FedAvgServerHandler):
    """FedLab's own server with the agreed cohorts, which waits for its turn before every round."""

    def __init__(self, workload: Workload, turns: Turns) -> None:
        super().__init__(first_model(workload), 10**9, workload.cohort / workload.clients)
        self.workload, self.turns = workload, turns

    @property
    def num_clients_per_round(self) -> int:
        return self.workload.cohort

    @property
    def if_stop(self) -> bool:
        if self.round:
            self.turns.done(self.sample_clients(self.round - 1))
        return not self.turns.begin(lambda: [p.detach().numpy() for p in self._model.parameters()])

    def sample_clients(self, number: int | None = None) -> list[int]:
        chosen: list[int] = cohort(self.workload, self.round if number is None else number).tolist()
        return chosen


class EvenCoordinator(Coordinator):
    """Gives every process as many clients of a cohort as the others; FedLab's own goes by ranges of client numbers."""

    def map_id_list(self, id_list: list[int]) -> dict[int, list[int]]:
        share = -(-len(id_list) // len(self.map))
        return {rank: id_list[place * share : (place + 1) * share] for place, rank in enumerate(self.map)}


class Server(SynchronousServerManager):
    """FedLab's own, with even shares."""

    def setup(self) -> None:
        super().setup()
        self.coordinator = EvenCoordinator(self.coordinator.map, "GLOBAL")


class Pipeline(StandalonePipeline):
    """FedLab's own, without evaluation."""

    def evaluate(self) -> None:
        return


def trainer(workload: Workload, clients: int) -> Trainer:
    """A process's share of the clients; any of them can be trained anywhere."""
    made = Trainer(first_model(workload), clients)
    made.setup_dataset(Rows(workload))
    made.setup_optim(epochs=1, batch_size=workload.batch, lr=workload.lr)
    return made


def work(name: str, port: int, rank: int) -> None:
    """One of the processes with clients."""
    logging.disable()
    torch.set_num_threads(1)
    workload = by_name(name)
    network = DistNetwork(("127.0.0.1", port), WORKERS + 1, rank)
    PassiveClientManager(network, trainer(workload, workload.clients // WORKERS)).run()


def runner(turns: Turns) -> None:
    """Take turns with the driver."""
    logging.disable()
    torch.set_num_threads(1)
    workload = by_name(sys.argv[1])
    handler = Handler(workload, turns)
    if "one" in sys.argv[2:]:
        turns.ready("standalone, one process", "fedlab", "torch")
        Pipeline(handler, trainer(workload, workload.clients)).main()
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    for rank in range(1, WORKERS + 1):
        context.Process(target=work, args=(workload.name, port, rank), daemon=True).start()
    server = Server(DistNetwork(("127.0.0.1", port), WORKERS + 1, 0), handler)
    server.setup()
    turns.ready(f"torch.distributed (gloo), a server and {WORKERS} processes of clients", "fedlab", "torch")
    server.main_loop()


if __name__ == "__main__":
    serve(runner)
