"""Flower: its simulation runtime on Ray, two actors of one processor each, its own FedAvg strategy.

`python -m benchmarks.peers.run_flower W1`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

from benchmarks.peers import flower_settings

# isort: split
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers import flower_client
from benchmarks.peers.plan import first_model
from benchmarks.peers.turns import Turns, serve
from benchmarks.workloads import Workload, by_name

ACTORS = 2


class Through(Exception):  # noqa: N818
    """The driver wants no more rounds; a strategy has no other way to stop early."""


class Turn(FedAvg):
    """Flower's own strategy, which waits for its turn before every round."""

    def __init__(self, workload: Workload, turns: Turns) -> None:
        super().__init__(
            fraction_train=workload.cohort / workload.clients,
            fraction_evaluate=0.0,
            min_train_nodes=workload.cohort,
            min_available_nodes=workload.clients,
        )
        self.turns = turns

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if not self.turns.begin(lambda: [t.numpy() for t in arrays.to_torch_state_dict().values()]):
            raise Through
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        received = list(replies)
        wrong = [reply.error.reason for reply in received if reply.has_error()]
        if wrong:
            raise RuntimeError(f"{len(wrong)} clients failed: {wrong[0]}")
        found = super().aggregate_train(server_round, received)
        self.turns.done([int(_metrics(reply)["client"]) for reply in received])
        return found


def _metrics(reply: Message) -> Any:
    return reply.content["metrics"]


def runner(turns: Turns) -> None:
    """Take turns with the driver."""
    torch.set_num_threads(1)
    workload = by_name(sys.argv[1])
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < workload.clients:
            time.sleep(0.1)
        turns.ready(f"simulation on Ray, {ACTORS} actors of one processor", "flwr", "ray", "torch")
        first = ArrayRecord(first_model(workload).state_dict())
        config = ConfigRecord({"workload": workload.name})
        Turn(workload, turns).start(grid, first, num_rounds=10**9, train_config=config)

    try:
        run_simulation(
            server,
            flower_client.app,
            num_supernodes=workload.clients,
            backend_config=flower_settings.backend(ACTORS),
        )
    except Through:
        return


if __name__ == "__main__":
    serve(runner)
