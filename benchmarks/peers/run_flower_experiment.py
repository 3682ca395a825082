"""`python -m benchmarks.peers.run_flower_experiment E1`: whole experiments in Flower's simulation, two actors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

from benchmarks.peers import flower_settings

# isort: split
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from benchmarks.experiments.data import columns
from benchmarks.experiments.methods import METHODS
from benchmarks.experiments.plan import Experiment, by_name, cohort, due
from benchmarks.experiments.site import Site, Tensors
from benchmarks.experiments.table import Rows, finish
from benchmarks.peers import flower_experiment_client

ACTORS = 2


def asked(grid: Grid, kind: str, content: RecordDict, nodes: Iterable[int]) -> list[Any]:
    """The replies of these nodes to one message each; a client that failed ends the experiment."""
    replies = list(grid.send_and_receive([Message(content, node, kind) for node in nodes]))
    wrong = [reply.error.reason for reply in replies if reply.has_error()]
    if wrong:
        raise RuntimeError(f"{len(wrong)} clients failed: {wrong[0]}")
    return replies


def run(grid: Grid, experiment: Experiment, name: str, nodes: dict[int, int]) -> tuple[Rows, Tensors]:
    """One method to its end."""
    method = METHODS[name]
    sent, _ = method.first(Site(experiment, columns(experiment), lean=False))
    config, rows = ConfigRecord({"experiment": experiment.name, "method": name}), []
    for number in range(experiment.rounds):
        content = RecordDict({"arrays": ArrayRecord(sent), "config": config})
        replies = asked(grid, "train", content, [nodes[client] for client in cohort(experiment, number)])
        total = {n: torch.zeros_like(t) for n, t in sent.items()}
        for reply in replies:
            for n, tensor in reply.content["arrays"].to_torch_state_dict().items():
                total[n] += tensor
        sent = method.server(experiment, sent, {n: t / len(replies) for n, t in total.items()})
        if due(experiment, number):
            content = RecordDict({"arrays": ArrayRecord(sent), "config": config})
            scores = [reply.content["metrics"]["scores"] for reply in asked(grid, "evaluate", content, nodes.values())]
            rows.append((number + 1, torch.tensor(scores).mean(0).tolist()))
    return rows, sent


def main() -> None:
    """All methods of an experiment, one after the other."""
    torch.set_num_threads(1)
    experiment = by_name(sys.argv[1])
    server = ServerApp()

    @server.main()
    def all_methods(grid: Grid, context: Context) -> None:
        while len(found := list(grid.get_node_ids())) < experiment.clients:
            time.sleep(0.1)
        names = asked(grid, "query", RecordDict(), found)
        nodes = {int(reply.content["who"]["client"]): reply.metadata.src_node_id for reply in names}
        nodes = dict(sorted(nodes.items()))
        results = {name: run(grid, experiment, name, nodes) for name in experiment.methods}
        finish(experiment, results, "flwr", "ray", "torch")

    run_simulation(
        server,
        flower_experiment_client.app,
        num_supernodes=experiment.clients,
        backend_config=flower_settings.backend(ACTORS),
    )


if __name__ == "__main__":
    main()
