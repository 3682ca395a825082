"""Nodes hand out their clients' models: of the selected round by default, the same bits as in the simulator."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fedtempo as ft
from fedtempo.cli.deploy import export_from_node
from fedtempo.config import ExperimentFile, dump, parse
from fedtempo.deploy.blueprint import of_file
from fedtempo.deploy.membership.roster import Reply, Request
from fedtempo.deploy.node import Node
from fedtempo.deploy.server import Plan, serve_run
from tests.e2e.deploy.wires import Wires, nodes_of, simulated

ROUNDS, CLIENTS = 8, 6


def file() -> ExperimentFile:
    """The rate explodes after round 3, so validation selects an early round and clients train on for long."""
    return parse(
        {
            "rounds": ROUNDS,
            "cohort": 4,
            "batch_size": 16,
            "backend": "serial",
            "data": {"name": "digits", "seed": 1, "split": {"name": "iid", "clients": CLIENTS}},
            "model": {"name": "mlp", "inputs": 64, "hidden": [8], "outputs": 10},
            "algorithm": {
                "name": "fedper",
                "lr": {"schedule": "sequence", "values": [0.5] * 3 + [50.0] * 5, "over": "round"},
                "steps": 12,
            },
            "evaluation": {"every": 1, "steps": 0},
        }
    )


def same(mine: torch.nn.Module, theirs: torch.nn.Module) -> bool:
    other = theirs.state_dict()
    return all(torch.equal(tensor, other[name]) for name, tensor in mine.state_dict().items())


def owner(nodes: dict[int, Node], client: int) -> Node:
    return next(node for node in nodes.values() if client in node.data.numbers)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ft.Result]:
    """A deployment whose server and nodes are stopped in the middle and started again, and its simulation."""
    folder = tmp_path_factory.mktemp("run")
    blueprint, plan, trained = of_file(file()), Plan(out=folder / "run"), []

    def stop(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        trained.append(kind)
        if trained.count("train") == 2 * 6:  # both nodes, six rounds
            raise KeyboardInterrupt
        return parts

    with pytest.raises(KeyboardInterrupt):
        serve_run(Wires(nodes_of(blueprint, 2, folder), stop), blueprint, plan)
    served = serve_run(Wires(nodes_of(blueprint, 2, folder)), blueprint, plan)
    here = simulated(blueprint.server(blueprint.data()))
    assert served.digest() == here.digest()
    assert served.at().round == here.at().round < ROUNDS - 3
    return folder, here


def test_every_clients_model_is_that_of_the_selected_round(run: tuple[Path, ft.Result]) -> None:
    folder, here = run
    nodes = nodes_of(of_file(file()), 2, folder)
    since = [set(report.clients) for report in here.history[here.at().round + 1 :]]
    assert any(sum(client in cohort for cohort in since) > 3 for client in range(CLIENTS)), "more than the line keeps"
    for client in range(CLIENTS):
        node = owner(nodes, client)
        assert same(node.model(client), here.model(client=client))
        assert same(node.model(client, "last"), here.model(client=client, which="last"))
        assert not same(node.model(client), node.model(client, "last"))
    with pytest.raises(ft.ConfigError, match="client must be one of this node's"):
        owner(nodes, 0).model(1)
    with pytest.raises(ft.ConfigError, match="which must be 'selected' or 'last'"):
        owner(nodes, 0).model(0, "best")  # type: ignore[arg-type]


def test_the_command_writes_it(run: tuple[Path, ft.Result], tmp_path: Path) -> None:
    folder, here = run
    path = tmp_path / "experiment.toml"
    path.write_text(dump(file()))
    state = folder / "node-1"  # the folder of the part 1/2
    given = {"state": state, "client": 1, "part": "1/2"}
    export_from_node(path, **given, out=tmp_path / "one")
    export_from_node(path, **given, out=tmp_path / "last", which="last")
    for name, which in (("one", "selected"), ("last", "last")):
        written = load_file(tmp_path / f"{name}.safetensors")
        expected = here.model(client=1, which=which).state_dict()
        assert written.keys() == expected.keys()
        assert all(torch.equal(written[key], expected[key]) for key in expected)
    with pytest.raises(ft.OutputError, match="state must be a node's folder"):
        export_from_node(path, client=1, out=tmp_path / "x", part="1/2", state=tmp_path / "nowhere")


class Unsettled(Wires):
    """Node 8 is not reached at the end of the run."""

    def exchange(self, requests: Mapping[int, Request], seconds: float | None) -> Iterator[Reply]:
        lost = {node for node, request in requests.items() if request.kind == "settle" and node == 8}
        yield from (Reply(node, requests[node].clients, [], "no room") for node in lost)
        yield from super().exchange({n: r for n, r in requests.items() if n not in lost}, seconds)


def test_a_node_that_is_away_at_the_end_is_named_and_told_when_the_run_is_resumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = file().model_copy(update={"rounds": 2})
    blueprint, plan = of_file(short), Plan(out=tmp_path / "run")
    nodes = nodes_of(blueprint, 2, tmp_path)
    with caplog.at_level(logging.WARNING, "fedtempo"):
        first = serve_run(Unsettled(nodes), blueprint, plan)
    lost = [line for line in caplog.messages if "does not keep its model" in line]
    assert lost == [f"client {c}: its node does not keep its model of this run: no room" for c in (1, 3, 5)]
    assert owner(nodes, 0).model(0) is not None
    with pytest.raises(ft.ConfigError, match="client 0's tensors are on its node, where `fedtempo deploy export`"):
        first.model(client=0)
    with pytest.raises(ft.StoreError, match="must hold a finished run"):
        owner(nodes, 1).model(1)
    caplog.clear()
    again = serve_run(Wires(nodes), blueprint, plan)
    assert again.digest() == first.digest() and not caplog.messages
    assert owner(nodes, 1).model(1) is not None
