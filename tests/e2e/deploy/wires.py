"""Server and nodes in one process, joined by bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import fedtempo as ft
from fedtempo.deploy.blueprint import Blueprint
from fedtempo.deploy.membership.roster import Reply, Request
from fedtempo.deploy.node import Node, make_node
from fedtempo.deploy.nodedata import NodeConfig
from fedtempo.training.experiment import Experiment
from fedtempo.training.loop import train_experiment
from fedtempo.training.prepare import prepare

FOUR: dict[str, Callable[[], ft.Algorithm]] = {
    "FedDecay": lambda: ft.algorithms.feddecay(lr=0.1, beta=0.6, steps=4),
    "FedNAR(SCAFFOLD)": lambda: ft.algorithms.fednar(
        ft.algorithms.scaffold(lr=0.05, steps=3), weight_decay=0.01, max_norm=1.0
    ),
    "PFLEGO": lambda: ft.algorithms.pflego(head_lr=0.1, server_lr=0.1, steps=3),
    "FedAdam with decaying K": lambda: ft.algorithms.fedadam(
        lr=0.1, server_lr=0.01, steps=ft.schedules.per_round(6, 0.7)
    ),
}


def experiment(digits: ft.data.FederatedData, algorithm: ft.Algorithm, **changes: object) -> Experiment:
    settings = {
        "model": ft.models.mlp(64, [16], 10),
        "data": digits,
        "algorithm": algorithm,
        "rounds": 5,
        "cohort": 6,
        "batch_size": 16,
        "seed": 3,
        "backend": "serial",
        "evaluation": ft.Evaluation(every=2, steps=1),
    }
    return prepare(**{**settings, **changes})  # type: ignore[arg-type]


def simulated(given: Experiment) -> ft.Result:
    rounds = train_experiment(given)
    while True:
        try:
            next(rounds)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


class Gone(str):
    """What is said of a node that goes away before it answers."""


Spoil = Callable[[int, str, list[bytes]], "list[bytes] | str | None"]
"""Changes what a node answers to a request of a kind: other parts, an error, or no answer at all."""


class Wires:
    """A transport whose nodes are in this process, and may be away or answer wrongly."""

    def __init__(self, nodes: Mapping[int, Node], spoil: Spoil = lambda node, kind, parts: parts) -> None:
        self.made = dict(nodes)
        self.spoil = spoil
        self.away: set[int] = set()

    def nodes(self) -> list[int]:
        return [node for node in self.made if node not in self.away]

    def name(self, node: int) -> str:
        return f"node {node}"

    def exchange(self, requests: Mapping[int, Request], seconds: float | None) -> Iterator[Reply]:
        for node in sorted(requests, reverse=True):  # not the order they were asked in
            kind, parts, clients, _ = requests[node]
            answer = self.spoil(node, kind, getattr(self.made[node], kind)(*parts))
            if isinstance(answer, str):
                yield Reply(node, clients, [], str(answer), isinstance(answer, Gone))
            elif answer is not None:
                yield Reply(node, clients, answer)


def nodes_of(blueprint: Blueprint, count: int, state: Path | None) -> dict[int, Node]:
    """Nodes 1, 8, 15, ... that share the experiment's own data set."""
    configs: list[NodeConfig] = [{"partition-id": part, "num-partitions": count} for part in range(count)]
    return {7 * part + 1: make_node(blueprint, config, state) for part, config in enumerate(configs)}
