"""Real deployments on loopback: a SuperLink and two SuperNodes as processes, TLS and node keys, killed and attacked."""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fedtempo as ft
from fedtempo.cli.deploy import export_from_node
from fedtempo.config import dump, read, settings_of
from fedtempo.deploy.flower_programs import NodePlan, ServerLaunch, start_node, stored_server
from fedtempo.deploy.keys import make_keys
from fedtempo.deploy.processes import ProcessGroup, Running, free_port
from fedtempo.deploy.trial import try_out
from tests.e2e.deploy.experiments import ALGORITHMS, experiment_file
from tests.e2e.deploy.stage import Stage, left_over, simulated
from tests.own_module import own_project

pytest.importorskip("flwr")
pytestmark = pytest.mark.slow(
    "real SuperLinks and SuperNodes; their orders and uploads run every time in test_loopback"
)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_deployment_has_the_digest_of_the_simulator(name: str, tmp_path: Path) -> None:
    lines: list[str] = []
    found = try_out(experiment_file(name), tmp_path / "trial", 2, lines.append)
    assert found.deployed == found.simulated
    assert sum(line.startswith("round ") for line in lines) == 5
    assert not left_over(tmp_path)
    if name == "PFLEGO":  # its clients keep a head each, which the nodes hand out
        path = tmp_path / "experiment.toml"
        path.write_text(dump(experiment_file(name)))
        state = tmp_path / "trial" / "node-1"
        export_from_node(path, state=state, client=2, part="0/2", out=tmp_path / "model.safetensors")
        here = ft.run(**settings_of(experiment_file(name))).model(client=2).state_dict()
        written = load_file(tmp_path / "model.safetensors")
        assert all(torch.equal(written[key], here[key]) for key in here)


def test_nodes_find_own_code_on_their_own_disk(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with own_project(tmp_path / "project") as path:
        found = try_out(read(path), tmp_path / "trial", 2, lambda line: None)
        assert found.equal
        with pytest.raises(ft.ConfigError, match="add --allow-code own_project"):
            stored_server(tmp_path / "trial" / "run")
        stored_server(tmp_path / "trial" / "run", ["own_project"])


@pytest.fixture
def processes() -> Iterator[ProcessGroup]:
    with ProcessGroup() as every:
        yield every


def test_intruders_are_refused_and_the_run_does_not_notice(tmp_path: Path, processes: ProcessGroup) -> None:
    file = experiment_file("FedDecay", rounds=3)
    stage = Stage(tmp_path, file, processes)
    make_keys(tmp_path / "others", 2)
    other = tmp_path / "others" / "node-1"
    unregistered = tmp_path / "unregistered"
    unregistered.mkdir()
    (unregistered / "ca.crt").write_bytes((tmp_path / "keys/node-1/ca.crt").read_bytes())
    (unregistered / "node.key").touch(mode=0o600)
    (unregistered / "node.key").write_bytes((other / "node.key").read_bytes())
    refused: dict[str, Running] = {}

    def intrude(line: str) -> None:
        if not line.startswith("round 1/"):
            return
        refused["unregistered key"] = stage.node(11, (0, 2), unregistered)
        refused["wrong authority"] = stage.node(12, (0, 2), other)
        plain = NodePlan(None, stage.address, tmp_path / "node-13", (0, 2))
        refused["plain connection"] = start_node(file, plain, processes)

    stage.run(intrude)
    assert stage.digest() == simulated(file)
    assert stage.failures() == []
    assert refused["unregistered key"].wait(60) not in (0, None)
    assert "Failed to activate SuperNode" in refused["unregistered key"].log.read_text()
    for name in ("wrong authority", "plain connection"):
        text = refused[name].log.read_text()
        assert "SuperNode ID" not in text, f"{name} was let in"
        assert "Connection attempt failed" in text or "onnection" in text


def test_a_plain_or_foreign_client_cannot_speak_to_the_port(tmp_path: Path, processes: ProcessGroup) -> None:
    stage = Stage(tmp_path, experiment_file("FedDecay", rounds=1), processes)
    with socket.create_connection(("127.0.0.1", stage.plan.port), timeout=10) as plain:
        plain.sendall(b"GET /v1/fleet HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            answer = plain.recv(1000)
        except ConnectionError:
            answer = b""
    assert b"HTTP/1.1 200" not in answer
    make_keys(tmp_path / "others", 1)
    context = ssl.create_default_context(cafile=str(tmp_path / "others/node-1/ca.crt"))
    raw = socket.create_connection(("127.0.0.1", stage.plan.port), timeout=10)
    with raw, pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(raw, server_hostname="localhost")


def test_a_node_killed_and_restarted_costs_its_own_clients_only(tmp_path: Path, processes: ProcessGroup) -> None:
    stage = Stage(tmp_path, experiment_file("PFLEGO", rounds=8), processes)

    def kill_then_restart(line: str) -> None:
        if line.startswith("round 1/"):
            stage.nodes[1].kill()
        elif "; client " in line and stage.nodes[1].code is not None:
            stage.nodes[1] = stage.node(2, (1, 2))

    stage.run(kill_then_restart)
    failures = stage.failures()
    assert failures
    assert all(client % 2 == 1 for _, client, _ in failures), "only clients of the killed node are lost"
    assert all(reason for _, _, reason in failures)
    rounds = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(rounds) == 8
    assert rounds[-1]["failures"] == [], "the restarted node takes part again, with the state it had kept"


def test_a_killed_superlink_is_resumed_to_the_same_digest(tmp_path: Path, processes: ProcessGroup) -> None:
    file = experiment_file("PFLEGO")
    stage = Stage(tmp_path, file, processes)
    with pytest.raises(ft.TrainingError, match="before its time"):
        stage.run(lambda line: stage.link.kill() if line.startswith("round 1/") else None)
    before = len(stage.lines)
    assert 1 <= sum(line.startswith("round ") for line in stage.lines) < 5
    again, plan = stored_server(tmp_path / "run")
    assert (again, plan.port) == (file, stage.plan.port)
    stage.server = ServerLaunch(tmp_path / "run", again, plan, processes)
    stage.server.start()
    stage.run(lambda line: None)
    assert stage.digest() == simulated(file)
    assert not any(line.startswith("round 1/") for line in stage.lines[before:]), "what was committed is not done again"


def test_the_commands_with_a_folder_of_data(tmp_path: Path, processes: ProcessGroup) -> None:
    """`deploy server` and `deploy client` as people use them, here without TLS, on data that only the node has."""
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    for number in range(4):
        x, y = rng.standard_normal((12, 64)).astype(np.float32), rng.integers(0, 10, 12)
        np.savez(tmp_path / "data" / f"{number}.npz", x=x, y=y, x_test=x[:3], y_test=y[:3])
    file, port = tmp_path / "experiment.toml", free_port()
    file.write_text(dump(experiment_file("PFLEGO", rounds=2).model_copy(update={"cohort": 4})))
    command = [str(Path(sys.executable).parent / "fedtempo"), "deploy"]
    server = [*command, "server", str(file), "--out", str(tmp_path / "run"), "--insecure", "--port", str(port)]
    client = [*command, "client", str(file), "--server", f"127.0.0.1:{port}", "--insecure", "--state"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    serving = processes.start("server", [*server, "--clients", "4", "--json"], tmp_path / "server.log", env)
    more = ["--data", str(tmp_path / "data")]
    node = processes.start("client", [*client, str(tmp_path / "state"), *more], tmp_path / "client.log", env)
    assert serving.wait(400) == 0, serving.log_tail(10)
    summary = json.loads(serving.log.read_text().splitlines()[-1])
    assert summary["rounds"] == 2
    assert summary["scores"]["existing_after"]["loss"]["mean"] > 0
    assert (tmp_path / "state" / "personal.sqlite").exists()
    assert node.code is None, "a node waits for the next run"
    node.stop()
    assert not left_over(tmp_path)
