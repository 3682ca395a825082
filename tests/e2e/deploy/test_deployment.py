"""Real deployments on loopback: a server and nodes as processes, with TLS and node keys, killed and resumed."""

from __future__ import annotations

import json
import signal
import socket
import ssl
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fedtempo as ft
from fedtempo.cli.deploy import export_from_node
from fedtempo.config import settings_of
from fedtempo.deploy.membership.keys import make_keys
from tests.e2e.deploy.experiments import ALGORITHMS, experiment_file
from tests.e2e.deploy.flowers import listens
from tests.e2e.deploy.stage import Stage, simulated
from tests.own_module import own_project
from tests.programs import fedtempo_ended
from tests.slow import slow_but
from tests.waiting import until

pytest.importorskip("flwr")


@pytest.mark.parametrize("name", slow_but(["PFLEGO"], ALGORITHMS, "their orders and uploads run in test_loopback"))
def test_a_server_killed_in_a_run_is_resumed_to_the_simulators_digest(name: str, tmp_path: Path) -> None:
    """The nodes go on running: they find the new server by themselves, and keep their clients' personal state."""
    with Stage(tmp_path, experiment_file(name)) as stage:
        stage.until_line("round 2/")
        stage.server.send_signal(signal.SIGKILL)
        assert stage.server.wait() == -signal.SIGKILL
        assert not listens(int(stage.address.rpartition(":")[2])), "nothing is left of it"
        before = len(stage.lines)
        stage.resume()
        assert stage.run() == 0, stage.errors
        assert not any(line.startswith("round 1/") for line in stage.lines[before:]), "what was committed is kept"
        assert stage.digest() == simulated(stage.file)
        assert stage.failures() == []
        assert all(node.poll() is None for node in stage.nodes), "nodes wait for the next run"
    if name == "PFLEGO":  # its clients keep a head each, which the nodes hand out
        state, path = tmp_path / "node-1", tmp_path / "experiment.toml"
        export_from_node(path, state=state, client=2, part="0/2", out=tmp_path / "model.safetensors")
        here = ft.run(**settings_of(stage.file)).model(client=2).state_dict()
        written = load_file(tmp_path / "model.safetensors")
        assert all(torch.equal(written[key], here[key]) for key in here)


@pytest.mark.slow("starts two interpreters; the same server and nodes run in the tests beside it")
def test_a_trial_has_the_simulators_digest(tmp_path: Path) -> None:
    done = fedtempo_ended("deploy", "trial", "--out", str(tmp_path / "trial"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["equal"] is True


@pytest.mark.slow("a whole deployment; what files may name is tested in tests/unit/config")
def test_nodes_find_own_code_on_their_own_disk(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with own_project(tmp_path / "project") as path:
        done = fedtempo_ended("deploy", "trial", str(path), "--out", str(tmp_path / "trial"), "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["equal"] is True
        refused = fedtempo_ended("resume", str(tmp_path / "trial/run"), "--keys", str(tmp_path / "trial/keys/server"))
        assert "add --allow-code own_project" in refused.stderr


def borrowed(folder: Path, **files: Path) -> Path:
    """A node's folder of keys with files of others."""
    folder.mkdir(mode=0o700)
    for name, source in files.items():
        path = folder / name.replace("_", ".")
        path.touch(mode=0o600)
        path.write_bytes(source.read_bytes())
    return folder


@pytest.mark.slow("nodes that are refused try on and on; their requests are refused in test_attacks, too")
def test_intruders_are_refused_and_the_run_does_not_notice(tmp_path: Path) -> None:
    make_keys(tmp_path / "others", 1)
    other = tmp_path / "others" / "node-1"
    with Stage(tmp_path, experiment_file("FedDecay", rounds=3), start=False) as stage:
        strange = borrowed(tmp_path / "strange", ca_crt=tmp_path / "keys/node-1/ca.crt", node_key=other / "node.key")
        stage.node(11, (0, 2), strange)
        foreign = stage.node(12, (0, 2), other)
        stage.secure = False
        stage.node(13, (0, 2))
        stage.secure = True
        assert until(lambda: "has not admitted this node's key" in stage.said(11))
        assert foreign.wait() == 3
        assert "must be one that" in stage.said(12)
        assert until(lambda: "cannot be reached" in stage.said(13))
        stage.nodes = [stage.node(1, (0, 2)), stage.node(2, (1, 2))]
        assert stage.run() == 0, stage.errors
        assert stage.digest() == simulated(stage.file)
        assert stage.failures() == []
        assert not any("connected to" in stage.said(number) for number in (11, 12, 13))


def test_a_plain_or_foreign_client_cannot_speak_to_the_port(tmp_path: Path) -> None:
    make_keys(tmp_path / "others", 1)
    with Stage(tmp_path, experiment_file("FedDecay", rounds=1), nodes=1, start=False) as stage:
        place = ("127.0.0.1", int(stage.address.rpartition(":")[2]))
        with socket.create_connection(place, timeout=10) as plain:
            plain.sendall(b"GET /v1/fleet HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                answer = plain.recv(1000)
            except ConnectionError:
                answer = b""
        assert b"HTTP/1.1 200" not in answer
        context = ssl.create_default_context(cafile=str(tmp_path / "others/node-1/ca.crt"))
        raw = socket.create_connection(place, timeout=10)
        with raw, pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(raw, server_hostname="localhost")


@pytest.mark.slow("the server has to notice that a node is gone, which takes it half a minute")
def test_a_node_killed_and_restarted_costs_its_own_clients_only(tmp_path: Path) -> None:
    """Started again at once, it waits until the server counts it as gone, and says so."""
    with Stage(tmp_path, experiment_file("PFLEGO", rounds=8)) as stage:

        def kill_then_restart(line: str) -> None:
            if line.startswith("round 1/"):
                stage.nodes[1].kill()
                stage.nodes[1].wait()
                stage.nodes[1] = stage.node(2, (1, 2))

        assert stage.run(kill_then_restart) == 0, stage.errors
        failures = stage.failures()
        assert failures
        assert all(client % 2 == 1 for _, client, _ in failures), "only clients of the killed node are lost"
        assert all(reason for _, _, reason in failures)
        rounds = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
        assert len(rounds) == 8
        assert rounds[-1]["failures"] == [], "the restarted node takes part again, with the state it had kept"
        assert "has a node with this key already" in stage.said(2)
        assert {"node 2 has left", "node 2 is back"} <= set(stage.lines)


def test_the_commands_with_a_folder_of_data(tmp_path: Path) -> None:
    """`deploy server` and `deploy client` as people use them, here without TLS, on data that only the node has."""
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    for number in range(4):
        x, y = rng.standard_normal((12, 64)).astype(np.float32), rng.integers(0, 10, 12)
        np.savez(tmp_path / "data" / f"{number}.npz", x=x, y=y, x_test=x[:3], y_test=y[:3])
    file = experiment_file("PFLEGO", rounds=2).model_copy(update={"cohort": 4})
    with Stage(tmp_path, file, start=False, options=("--clients", "4"), secure=False) as stage:
        node = stage.node(1, options=("--data", tmp_path / "data"))
        assert stage.run() == 0, stage.errors
        assert node.poll() is None, "a node waits for the next run"
        again = ("deploy", "server", stage.path, "--out", tmp_path / "again", "--clients", "4")
        stage.serve(*again, "--port", stage.address.rpartition(":")[2])
        assert stage.run() == 0, stage.errors
        assert (tmp_path / "again" / "summary.json").exists(), "the same node serves the next run"
    status = json.loads(fedtempo_ended("deploy", "status", str(tmp_path / "run"), "--json").stdout)
    assert (status["served"], status["rounds"]) == (False, 2)
    (seen,) = status["nodes"]
    assert (seen["here"], seen["clients"], seen["rounds"], seen["failures"]) == (False, 4, 2, 0)
    assert seen["received"] > 1000 and seen["last"] > 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["rounds"] == 2
    assert summary["scores"]["existing_after"]["loss"]["mean"] > 0
    assert (tmp_path / "node-1" / "personal.sqlite").stat().st_mode & 0o077 == 0
    assert (tmp_path / "run" / "run.token").stat().st_mode & 0o077 == 0


def test_a_server_listens_at_its_address_and_only_there(tmp_path: Path) -> None:
    options = ("--host", "127.0.0.2")
    with Stage(tmp_path, experiment_file("FedDecay"), nodes=1, start=False, options=options, secure=False) as stage:
        host, _, port = stage.address.rpartition(":")
        assert host == "127.0.0.2"
        assert not listens(int(port))


def test_a_second_server_of_a_run_is_refused(tmp_path: Path) -> None:
    with Stage(tmp_path, experiment_file("FedDecay"), nodes=1, start=False) as stage:
        keys = str(tmp_path / "keys" / "server")
        refused = fedtempo_ended("resume", str(tmp_path / "run"), "--keys", keys, "--port", "0")
        assert refused.returncode == 6
        assert "is served already" in refused.stderr
        taken = fedtempo_ended(
            "resume", str(tmp_path / "run"), "--keys", keys, "--port", stage.address.rpartition(":")[2]
        )
        assert taken.returncode == 3
        assert "port must be one that can be listened on" in taken.stderr


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    with Stage(tmp_path, experiment_file("FedDecay"), nodes=1, start=False) as stage:
        stage.server.send_signal(signal.SIGINT)
        stage.run()
    host, _, port = stage.address.rpartition(":")
    options = f"--keys {tmp_path / 'keys/server'} --host {host} --port {port}"
    assert f"fedtempo: go on with: fedtempo resume {tmp_path / 'run'} {options}\n" in stage.errors
