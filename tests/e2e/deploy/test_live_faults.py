"""Real deployments on loopback that go wrong: each fault costs what it must, and its cause is named.

Slow: every test starts a SuperLink and SuperNodes, and Flower starts a Python process for every message.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtempo.config import dump, read
from fedtempo.deploy.flower_programs import NodePlan, start_node, stored_server
from fedtempo.deploy.keys import make_keys, server_keys
from fedtempo.deploy.processes import ProcessGroup, Running, environment, free_port, wait_for_port
from tests.e2e.deploy.experiments import experiment_file
from tests.e2e.deploy.stage import Stage, simulated
from tests.e2e.deploy.test_leftovers import started_for, wait_until

pytest.importorskip("flwr")
pytestmark = pytest.mark.slow("real Flower processes that are killed, refused and slowed; about a minute each")
FEDTEMPO = str(Path(sys.executable).parent / "fedtempo")


@pytest.fixture
def processes() -> Iterator[ProcessGroup]:
    with ProcessGroup() as every:
        yield every


def command(processes: ProcessGroup, log: Path, *arguments: object) -> Running:
    """`fedtempo ...` as people use it."""
    return processes.start(log.stem, [FEDTEMPO, *map(str, arguments)], log, {**os.environ, "OMP_NUM_THREADS": "1"})


def said(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""


@pytest.mark.parametrize("how", ["the server", "the server and its guards"])
def test_a_server_killed_at_once_leaves_nobody_and_is_resumed(
    how: str, tmp_path: Path, processes: ProcessGroup
) -> None:
    file, port, run = tmp_path / "experiment.toml", free_port(), tmp_path / "run"
    file.write_text(dump(experiment_file("PFLEGO")))
    log, again = tmp_path / "server.log", tmp_path / "resumed.log"
    guarded = command(processes, log, "deploy", "server", file, "--out", run, "--insecure", "--port", port)
    node = ["deploy", "client", file, "--server", f"127.0.0.1:{port}", "--insecure", "--part", "0/1", "--state"]
    command(processes, tmp_path / "client.log", *node, tmp_path / "state")
    wait_until(lambda: "round 1/5" in said(log), 300.0)
    home = run / "flower"
    assert len(started_for(home)) >= 6, "two guards, SuperLink, superexec, serverapp, flwr run"
    owner = json.loads((home / "processes.json").read_text())["owner"]["pid"]
    assert owner != guarded.pid
    guards = [pid for pid in started_for(home) if b"process_guard.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in (owner, *(guards if how != "the server" else [])):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not started_for(home))
    resumed = command(processes, again, "resume", run, "--json")
    assert resumed.wait(400) == 0, said(again)
    assert json.loads(said(again).splitlines()[-1])["digest"] == simulated(experiment_file("PFLEGO"))
    assert not started_for(home)


def test_a_second_server_of_a_run_is_refused(tmp_path: Path, processes: ProcessGroup) -> None:
    file, port, run = tmp_path / "experiment.toml", free_port(), tmp_path / "run"
    file.write_text(dump(experiment_file("FedDecay")))
    log, second = tmp_path / "server.log", tmp_path / "second.log"
    first = command(processes, log, "deploy", "server", file, "--out", run, "--insecure", "--port", port)
    wait_until(lambda: "waiting" in said(log), 300.0)
    refused = command(processes, second, "resume", run)
    assert refused.wait(300) == 6
    assert "is served by" in said(second)
    assert first.code is None


def test_a_certificate_that_expires(tmp_path: Path, processes: ProcessGroup) -> None:
    """The server refuses to start with one. A node that meets one says so, where Flower's own would try on and on."""
    make_keys(tmp_path / "keys", 1, days=-1.0)
    keys, port, file = tmp_path / "keys", free_port(), tmp_path / "experiment.toml"
    file.write_text(dump(experiment_file("FedDecay")))
    log = tmp_path / "server.log"
    options = ["--keys", keys / "server", "--port", port]
    server = command(processes, log, "deploy", "server", file, "--out", tmp_path / "run", *options)
    assert server.wait(60) == 3
    assert "server.crt must be valid now" in said(log)
    server_crt, server_key = keys / "server" / "server.crt", keys / "server" / "server.key"
    link = ["flower-superlink", "--host", "127.0.0.1", "--port", str(port), "--ssl-certfile", str(server_crt)]
    link += ["--ssl-keyfile", str(server_key), "--ssl-ca-certfile", str(keys / "server" / "ca.crt")]
    serving = processes.start("SuperLink", link, tmp_path / "link.log", environment(tmp_path / "home"))
    wait_for_port(serving, port, 60.0)
    log = tmp_path / "client.log"
    options = ["--server", f"127.0.0.1:{port}", "--keys", keys / "node-1", "--part", "0/1"]
    node = command(processes, log, "deploy", "client", file, *options, "--state", tmp_path / "state")
    assert node.wait(60) == 3
    assert "certificate has expired" in said(log)
    with pytest.raises(ValueError, match="must be valid now"):
        server_keys(keys / "server")


def test_a_node_that_is_revoked_during_a_run(
    tmp_path: Path, processes: ProcessGroup, caplog: pytest.LogCaptureFixture
) -> None:
    """Its clients are lost from then on, it is not let in again, and both sides say so."""
    file, log = tmp_path / "experiment.toml", tmp_path / "client.log"
    file.write_text(dump(experiment_file("FedDecay", rounds=6)))
    stage = Stage(tmp_path, experiment_file("FedDecay", rounds=6), processes, start=False)
    stage.node(1, (0, 2))
    options = ["--server", stage.address, "--keys", tmp_path / "keys" / "node-2", "--part", "1/2"]
    arguments = ["deploy", "client", file, *options, "--state", tmp_path / "state"]
    node = command(processes, log, *arguments)

    def revoke(line: str) -> None:
        if line.startswith("round 1/"):
            (tmp_path / "keys/server/nodes/2.pub").unlink()

    stage.run(revoke)
    failures = stage.failures()
    assert {client % 2 for _, client, _ in failures} == {1}
    assert {round_number for round_number, _, _ in failures} >= {4, 5}, "the last rounds were without it"
    assert "is revoked: its key 2.pub was removed" in caplog.text
    assert node.wait(90) == 7
    assert "this node's key among those it lets in" in said(log)
    again = command(processes, tmp_path / "again.log", *arguments)
    assert again.wait(90) == 7
    assert "this node's key among those it lets in" in said(tmp_path / "again.log")


def test_a_server_whose_only_node_is_killed_in_a_round_waits_and_asks_again(
    tmp_path: Path, processes: ProcessGroup
) -> None:
    file = experiment_file("PFLEGO", rounds=3)
    stage = Stage(tmp_path, file, processes, nodes=1)

    def kill_then_restart(line: str) -> None:
        if line.startswith("round 1/"):
            stage.nodes[0].kill()
        elif line.startswith("all nodes have gone"):
            stage.nodes[0] = stage.node(1, (0, 1))

    stage.run(kill_then_restart)
    assert any(line.startswith("all nodes have gone") for line in stage.lines)
    assert stage.failures() == []
    assert stage.digest() == simulated(file)


HOSTILE = """
import time
from pathlib import Path
from fedtempo.config import read
from fedtempo.config.construct_data import make_data
from fedtempo.deploy import flower, node
from fedtempo.deploy.nodedata import share

upload, packed, train = node.upload_to_bytes, flower._packed, node.Node.train


def oversized(config):
    node.upload_to_bytes = lambda given: upload(given) + bytes(8 << 20)
    return share(make_data(read(Path({path!r})).data), 1, 4)


def slow(config):
    def late(self, order, tasks):
        time.sleep(240)
        return train(self, order, tasks)

    node.Node.train = late
    return share(make_data(read(Path({path!r})).data), 2, 4)


def twice(config):
    flower._packed = lambda parts: packed(parts if len(parts) < 2 else parts * 2)
    return share(make_data(read(Path({path!r})).data), 3, 4)
"""
SENDS_TWICE = '''
"""Makes a SuperNode push every reply a second time, as another message."""
import copy
import flwr.supernode.start_client_internal as internal

connection = internal._init_connection

def doubled(*arguments, **options):
    from contextlib import contextmanager

    @contextmanager
    def wrapped():
        with connection(*arguments, **options) as (node_id, receive, send, *rest):
            def send_twice(message, *more):
                found = send(message, *more)
                again = copy.deepcopy(message)
                again.metadata.__dict__["_created_at"] = message.metadata.created_at - 0.001
                again.metadata.__dict__["_message_id"] = again.object_id
                try:
                    print("second reply:", send(again, *more), flush=True)
                except BaseException as error:
                    print("second reply:", type(error).__name__, error, flush=True)
                return found
            yield (node_id, receive, send_twice, *rest)
    return wrapped()

internal._init_connection = doubled
'''


def test_oversized_slow_and_doubled_answers(
    tmp_path: Path, processes: ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three nodes misbehave, each in its own way; the fourth sends every reply twice. Its clients alone count."""
    everybody = {"cohort": 16, "deadline": 120.0, "evaluation": None}
    path = tmp_path / "experiment.toml"
    path.write_text(dump(experiment_file("FedDecay", rounds=1).model_copy(update=everybody)))
    file = read(path)  # as all nodes do
    (tmp_path / "hostile.py").write_text(HOSTILE.format(path=str(path)))
    (tmp_path / "twice").mkdir()
    (tmp_path / "twice" / "sitecustomize.py").write_text(SENDS_TWICE)
    source = os.environ.get("PYTHONPATH", "")
    stage = Stage(tmp_path, file, processes, nodes=4, start=False)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{source}")
    for number, loader in enumerate(("oversized", "slow", "twice"), start=2):
        keys, state = tmp_path / f"keys/node-{number}", tmp_path / f"node-{number}"
        start_node(file, NodePlan(keys, stage.address, state, loader=f"hostile:{loader}"), processes)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'twice'}{os.pathsep}{source}")
    stage.node(1, (0, 4))
    stage.run(lambda line: None)
    reasons = {client % 4: reason for _, client, reason in stage.failures()}
    assert sorted(reasons) == [1, 2, 3]
    assert reasons[1].startswith("malformed: upload must be ")
    assert "Got 839" in reasons[1], "8 MiB and an upload"
    assert reasons[2] == "no answer within the deadline of 120 s"
    assert reasons[3] == "10 answers for 5 clients"
    assert "second reply:" in said(tmp_path / "node-1" / "node.log"), "it did try"
    assert "duplicate reply" in said(tmp_path / "run/flower/superlink.log")


def test_a_loader_that_raises_is_named_at_the_server(
    tmp_path: Path, processes: ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = experiment_file("FedDecay", rounds=1)
    (tmp_path / "broken.py").write_text("def load(config):\n    raise RuntimeError('no database')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    stage = Stage(tmp_path, file, processes, nodes=1, start=False, patience=45.0)
    plan = NodePlan(tmp_path / "keys/node-1", stage.address, tmp_path / "node-1", loader="broken:load")
    start_node(file, plan, processes)
    with pytest.raises(RuntimeError, match="broken:load raised RuntimeError: no database"):
        stage.run(lambda line: None)
    assert stored_server(tmp_path / "run")[1].patience == 45.0
