"""`python -m benchmarks.peers.run_fedlab_experiment E1 [one]`: whole experiments in FedLab.

A server and two processes that simulate half of the clients each; `one` keeps everything in one process. FedLab scores
on the server; here users are scored where they train, in rounds of their own, since they are tuned or keep something.
"""

from __future__ import annotations

import logging
import multiprocessing
import socket
import sys
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers import fedlab_import  # noqa: F401

# isort: split
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.client.manager import PassiveClientManager
from fedlab.core.client.trainer import SerialClientTrainer
from fedlab.core.network import DistNetwork
from fedlab.core.server.manager import SynchronousServerManager
from fedlab.core.standalone import StandalonePipeline

from benchmarks.experiments.data import columns
from benchmarks.experiments.methods import METHODS, scored
from benchmarks.experiments.plan import Experiment, by_name, cohort, due
from benchmarks.experiments.site import Site, Tensors, packed, unpacked
from benchmarks.experiments.table import Rows, finish

WORKERS = 2


class Trainer(SerialClientTrainer):
    """A process's clients. A payload is a vector of tensors, the number of the method, and whether to score."""

    def __init__(self, experiment: Experiment, clients: int) -> None:
        self.site = Site(experiment, columns(experiment), lean=False)
        super().__init__(self.site.network, clients, cuda=False)
        self.firsts = [METHODS[name].first(self.site) for name in experiment.methods]
        self.kept: dict[tuple[int, int], Tensors] = {}
        self.cache: list[list[Tensor]] = []

    @property
    def uplink_package(self) -> list[list[Tensor]]:
        package, self.cache = self.cache, []
        return package

    def local_process(self, payload: list[Tensor], id_list: list[int]) -> None:
        vector, order = payload
        place, scores = int(order[0]), bool(order[1])
        method, (first_sent, first_kept) = METHODS[self.site.experiment.methods[place]], self.firsts[place]
        sent = unpacked(vector, first_sent)
        for client in id_list:
            kept = self.kept.get((place, client), first_kept)
            if scores:
                self.cache.append([torch.tensor(scored(self.site, method, client, sent, kept))])
                continue
            upload, self.kept[place, client] = method.client(self.site, client, sent, kept)
            self.cache.append([packed(upload)])


class Handler(SyncServerHandler):
    """FedLab's synchronous server, which goes through the methods and has rounds of scoring."""

    def __init__(self, experiment: Experiment) -> None:
        site = Site(experiment, columns(experiment), lean=False)
        super().__init__(site.network, experiment.rounds, experiment.cohort / experiment.clients)
        self.experiment, self.scores, self.place = experiment, False, 0
        self.firsts = [METHODS[name].first(site)[0] for name in experiment.methods]
        self.sent = dict(self.firsts[0])
        self.rows: Rows = []
        self.found: dict[str, tuple[Rows, Tensors]] = {}

    @property
    def downlink_package(self) -> list[Tensor]:
        return [packed(self.sent), torch.tensor([float(self.place), float(self.scores)])]

    @property
    def num_clients_per_round(self) -> int:
        return self.experiment.clients if self.scores else self.experiment.cohort

    def sample_clients(self, *_: Any) -> list[int]:
        return list(range(self.experiment.clients)) if self.scores else cohort(self.experiment, self.round)

    @property
    def if_stop(self) -> bool:
        return self.place == len(self.firsts)

    def load(self, payload: list[Tensor]) -> bool:
        self.client_buffer_cache.append(payload)
        if len(self.client_buffer_cache) < self.num_clients_per_round:
            return False
        mean = torch.stack([packet[0] for packet in self.client_buffer_cache]).mean(0)
        self.client_buffer_cache = []
        self.global_update(mean)
        return True

    def global_update(self, buffer: Tensor) -> None:
        e = self.experiment
        if self.scores:
            self.rows.append((self.round + 1, buffer.tolist()))
        else:
            name = e.methods[self.place]
            self.sent = METHODS[name].server(e, self.sent, unpacked(buffer, self.firsts[self.place]))
        self.scores = not self.scores and due(e, self.round)
        if self.scores:
            return
        self.round += 1
        if self.round == e.rounds:
            self._next_method()

    def _next_method(self) -> None:
        self.found[self.experiment.methods[self.place]] = (self.rows, self.sent)
        self.place, self.round, self.rows = self.place + 1, 0, []
        if self.place < len(self.firsts):
            self.sent = dict(self.firsts[self.place])


class Pipeline(StandalonePipeline):
    """FedLab's own, without its evaluation on the server."""

    def evaluate(self) -> None:
        return


def work(name: str, port: int, rank: int) -> None:
    """One of the processes with clients."""
    logging.disable()
    torch.set_num_threads(1)
    experiment = by_name(name)
    share = experiment.clients // WORKERS + (rank <= experiment.clients % WORKERS)
    PassiveClientManager(DistNetwork(("127.0.0.1", port), WORKERS + 1, rank), Trainer(experiment, share)).run()


def main() -> None:
    """All methods of an experiment, one after the other."""
    logging.disable()
    torch.set_num_threads(1)
    experiment = by_name(sys.argv[1])
    handler = Handler(experiment)
    if "one" in sys.argv[2:]:
        Pipeline(handler, Trainer(experiment, experiment.clients)).main()
        finish(experiment, handler.found, "fedlab", "torch")
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    for rank in range(1, WORKERS + 1):
        context.Process(target=work, args=(experiment.name, port, rank), daemon=True).start()
    server = SynchronousServerManager(DistNetwork(("127.0.0.1", port), WORKERS + 1, 0), handler, mode="GLOBAL")
    server.setup()
    server.main_loop()
    finish(experiment, handler.found, "fedlab", "torch")
    server.shutdown()


if __name__ == "__main__":
    main()
