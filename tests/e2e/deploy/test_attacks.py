"""Who can reach the port of a deployment, and what they get: nothing, unless their key is admitted.

The attackers are real: another user of this machine (where the tests may change their user) with the authority's
certificate, which every node has, and the holder of a node's key.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedtempo.deploy.membership.keys import make_keys
from tests.e2e.deploy.experiments import experiment_file
from tests.e2e.deploy.flowers import listens, programs
from tests.e2e.deploy.stage import Stage, simulated
from tests.programs import Forked
from tests.waiting import until

T = TypeVar("T")
NOBODY = 65534
WITHOUT_KEY = (
    ("POST", "/v1/control/list-runs"),
    ("POST", "/v1/control/list-nodes"),
    ("POST", "/v1/control/start-run"),
    ("POST", "/v1/control/register-node"),
    ("POST", "/v1/runtime/acquire-task"),
    ("POST", "/v1/runtime/get-nodes"),
    ("POST", "/v1/fleet/pull-messages"),
    ("POST", "/v1/fleet/register-node"),
    ("POST", "/v1/fleet/../control/list-runs"),
    ("POST", "/v1/fleet/%2e%2e/control/list-runs"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/health"),
)
WITH_KEY = (*WITHOUT_KEY[:6], *WITHOUT_KEY[7:], ("POST", "/v1/fleet/get-fab"), ("GET", "/v1/fleet/pull-messages"))
LARGE = 64 << 20


def as_nobody(work: Callable[[], T]) -> T:
    """What `work` returns in a process of another user, or of this one where the tests cannot become another."""

    def other() -> None:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        print(json.dumps(work()))

    "".encode("idna")  # loaded before: the other user may not read the files of this Python
    program = Forked(other)
    output, error = program.communicate()
    assert program.wait() == 0, error
    found: T = json.loads(output)
    return found


def memory(pid: int) -> int:
    """Bytes that a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def signed(folder: Path, when: datetime | None = None) -> dict[str, str]:
    """What a node's requests carry."""
    private = serialization.load_ssh_private_key((folder / "node.key").read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    stamp = (when or datetime.now(UTC)).isoformat()
    signature = private.sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        "flwr-public-key": b64encode(public).decode(),
        "flwr-signature": b64encode(signature).decode(),
        "flwr-timestamp": stamp,
    }


class Asking:
    """Somebody with the authority's certificate."""

    def __init__(self, stage: Stage) -> None:
        self._host, _, port = stage.address.rpartition(":")
        self._port, self._context = int(port), ssl.create_default_context()
        self._context.load_verify_locations(cadata=(stage.folder / "keys/node-1/ca.crt").read_text())

    def status(self, method: str, path: str, headers: Mapping[str, str] = {}, body: bytes | None = None) -> int:
        connection = http.client.HTTPSConnection(self._host, self._port, context=self._context, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"content-type": "application/protobuf", **headers})
            return connection.getresponse().status

    def push(self, length: int, headers: Mapping[str, str] = {}) -> str:
        """How a request of many bytes ends, and after how many of them."""
        plain, sent, piece = socket.create_connection((self._host, self._port), 60), 0, bytes(1 << 20)
        with self._context.wrap_socket(plain, server_hostname=self._host) as secure:
            lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
            head = f"POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n{''.join(lines)}\r\n"
            secure.sendall(head.encode())
            try:
                while sent < length:
                    secure.sendall(piece)
                    sent += len(piece)
            except OSError:
                return f"cut off after {sent < length}"
            return secure.recv(100).decode().split("\r\n")[0]


def test_whoever_reaches_the_port_gets_nothing_and_the_run_does_not_notice(tmp_path: Path) -> None:
    """Attacks while the run goes on: by another user, with a node's key, with a stranger's key, with many bytes."""
    file = experiment_file("FedDecay", rounds=2)
    make_keys(tmp_path / "others", 1)
    with Stage(tmp_path, file, start=False) as stage:
        asking, before = Asking(stage), memory(stage.server.pid)
        assert as_nobody(lambda: {path: asking.status(*(method, path)) for method, path in WITHOUT_KEY}) == {
            path: 404 for _, path in WITHOUT_KEY
        }
        own = tmp_path / "keys" / "node-1"
        assert {path: asking.status(method, path, signed(own)) for method, path in WITH_KEY} == {
            path: 404 for _, path in WITH_KEY
        }
        pull = "/v1/fleet/pull-messages"
        assert asking.status("POST", pull, signed(own), b"") == 401, "the door is passed; Flower knows no such node"
        assert asking.status("POST", pull, signed(tmp_path / "others" / "node-1"), b"") == 404
        for minutes in (-6, 1):
            wrong = signed(own, datetime.now(UTC) + timedelta(minutes=minutes))
            assert asking.status("POST", pull, wrong, b"") == 404
        for spoiled in ({"flwr-signature": "AAAA"}, {"flwr-timestamp": "now"}, {"flwr-public-key": ""}):
            assert asking.status("POST", pull, {**signed(own), **spoiled}, b"") == 404
        for headers in ({}, signed(own)):
            assert asking.push(LARGE, headers).startswith(("cut off", "HTTP/1.1 4"))
        assert memory(stage.server.pid) - before < LARGE / 4, "nobody has read it"
        stage.nodes = [stage.node(1, (0, 2)), stage.node(2, (1, 2))]
        assert stage.run() == 0, stage.errors
        assert stage.digest() == simulated(file)
        assert stage.failures() == []


@pytest.mark.slow("starts Flower's own server, its command line and an app, which takes half a minute")
def test_a_hostile_servers_app_does_not_run_on_a_node(tmp_path: Path) -> None:
    """The server is the one that the node trusts, and sends an app to it; Flower's own node would run it."""
    from fedtempo.deploy.membership.keys import server_keys

    file, ran = experiment_file("FedDecay", rounds=1), tmp_path / "ran"
    with Stage(tmp_path, file, nodes=1, start=False) as stage, programs(tmp_path / "home") as flower:
        stage.server.kill()
        stage.server.wait()
        keys, port = server_keys(tmp_path / "keys" / "server"), stage.address.rpartition(":")[2]
        tls = ["--ssl-ca-certfile", keys.authority, "--ssl-certfile", keys.certificate, "--ssl-keyfile", keys.key]
        link = ["flower-superlink", "--host", "127.0.0.1", "--port", port, "--enable-supernode-auth"]
        flower.start([*link, *map(str, tls), "--disable-runtime-dependency-installation"], tmp_path / "link.log")
        assert until(lambda: listens(int(port)))
        (tmp_path / "home").mkdir(exist_ok=True)
        where = f'address = "{stage.address}"\nroot-certificates = "{keys.authority}"\n'
        (tmp_path / "home" / "config.toml").write_text(f'[superlink]\ndefault = "l"\n[superlink.l]\n{where}')
        flower.done(["flwr", "supernode", "register", str(keys.nodes[0]), "l"], tmp_path / "register.log")
        node = stage.node(1, (0, 1))
        assert until(lambda: "connected to" in stage.said(1)), stage.said(1)
        app = tmp_path / "app"
        (app / "hostile").mkdir(parents=True)
        (app / "hostile" / "__init__.py").touch()
        (app / "hostile" / "app.py").write_text(HOSTILE.format(ran=str(ran)))
        (app / "pyproject.toml").write_text(APP)
        flower.start(["flwr", "run", str(app), "l", "--stream"], tmp_path / "run.log")
        assert until(lambda: "the server asked for" in stage.said(1), 120), (tmp_path / "run.log").read_text()
        assert not ran.exists()
        assert node.poll() is None


HOSTILE = """
import threading
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


@client.train()
def train(message, context):
    open({ran!r}, "w").close()
    return Message(RecordDict(), reply_to=message)


@server.main()
def main(grid, context):
    while not (nodes := list(grid.get_node_ids())):
        threading.Event().wait(1.0)
    content = RecordDict({{"fedtempo": ConfigRecord({{"parts": [b"run", b"this"]}})}})
    list(grid.send_and_receive([Message(content, nodes[0], "train")], timeout=60))
"""
APP = """
[project]
name = "hostile"
version = "1.0.0"
dependencies = []
[tool.flwr.app]
publisher = "hostile"
[tool.flwr.app.components]
serverapp = "hostile.app:server"
clientapp = "hostile.app:client"
[tool.flwr.app.config]
"""
