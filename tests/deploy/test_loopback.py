"""Server and nodes in one process, joined by bytes: what a deployment computes is what the simulator computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.deploy.blueprint import Blueprint, blueprint_of
from fedtempo.deploy.node import Node, make_node
from fedtempo.deploy.roster import Reply, Request
from fedtempo.deploy.server import Plan, serve
from fedtempo.experiment import Experiment, prepare

FOUR: dict[str, Callable[[], ft.Algorithm]] = {
    "FedDecay": lambda: ft.algorithms.feddecay(lr=0.1, beta=0.6, steps=4),
    "FedNAR(SCAFFOLD)": lambda: ft.algorithms.fednar(
        ft.algorithms.scaffold(lr=0.05, steps=3), weight_decay=0.01, max_norm=1.0
    ),
    "PFLEGO": lambda: ft.algorithms.pflego(lr=0.1, server_lr=0.1, steps=3),
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
    from fedtempo.training import train_experiment

    rounds = train_experiment(given)
    while True:
        try:
            next(rounds)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


class Wires:
    """Nodes at the end of a wire; `spoil` may change what a node answers, `away` says who is not connected."""

    def __init__(self, blueprint: Blueprint, nodes: int, state: Path) -> None:
        self.made: dict[int, Node] = {
            7 * part + 1: make_node(blueprint, {"partition-id": part, "num-partitions": nodes}, state)
            for part in range(nodes)
        }
        self.away: set[int] = set()
        self.asked: list[str] = []

    def spoil(self, node: int, kind: str, parts: list[bytes]) -> list[bytes] | str:
        return parts

    def nodes(self) -> list[int]:
        return [node for node in self.made if node not in self.away]

    def exchange(self, requests: Mapping[int, Request], seconds: float | None) -> Iterator[Reply]:
        for node in reversed(sorted(requests)):  # not the order they were asked in
            kind, parts, clients = requests[node]
            self.asked.append(kind)
            answer = self.spoil(node, kind, getattr(self.made[node], kind)(*parts))
            yield Reply(node, clients, [], answer) if isinstance(answer, str) else Reply(node, clients, answer)


@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize("nodes", [1, 3])
def test_the_digest_is_that_of_the_simulator(
    name: str, nodes: int, digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    given = experiment(digits, FOUR[name]())
    blueprint = blueprint_of(given)
    here, there = simulated(given), serve(Wires(blueprint, nodes, tmp_path), blueprint, Plan())
    assert there.digest() == here.digest()
    for mine, theirs in zip(here.history, there.history, strict=True):
        assert (mine.loss, mine.clients, mine.costs) == (theirs.loss, theirs.clients, theirs.costs)
        assert mine.measurements == theirs.measurements
        assert repr(mine.test) == repr(theirs.test)
        assert repr(mine.validation) == repr(theirs.validation)


def test_the_server_never_sees_a_personal_tensor_or_a_row(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    given = experiment(digits, FOUR["PFLEGO"]())
    blueprint = blueprint_of(given)
    result = serve(Wires(blueprint, 2, tmp_path), blueprint, Plan(out=tmp_path / "run"))
    assert {name for client in digits.clients for name in result.store.get(int(client)) or {}} == {"sha256"}
    assert not any(np.any(column) for column in result.experiment.federation.data.columns.values())
