"""Closed by default: keys that others cannot read, TLS unless on loopback, and one line about what is wrong."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import stat
import sys
import threading
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.cli import main
from fedtempo.deploy.launch.plans import NodePlan, ServerPlan
from fedtempo.deploy.membership.keys import check_server, is_loopback, make_keys, node_keys, server_keys
from tests import ROOT

EXAMPLE = ROOT / "examples" / "feddecay.toml"
SOURCE = Path(ft.__file__).parent
pytest.importorskip("flwr")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "keys"
    make_keys(folder, 2, ["fl.example.org", "192.0.2.7", "127.0.0.1"])
    return folder


def test_only_the_owner_can_read_what_is_made(keys: Path) -> None:
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (keys, *keys.rglob("*"))}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items())
    assert len(server_keys(keys / "server").nodes) == 2
    assert node_keys(keys / "node-2").key.read_text().startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert not list((keys / "server").rglob("*ca.key")), "what signs certificates stays with its owner"


def test_the_certificate_names_the_server_and_is_signed_by_the_authority(keys: Path) -> None:
    from cryptography import x509

    authority, server = (
        x509.load_pem_x509_certificate((keys / "server" / name).read_bytes()) for name in ("ca.crt", "server.crt")
    )
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7", "127.0.0.1"]
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_keys_that_others_can_read_are_refused(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", 1)
    for path, check in (("server/server.key", server_keys), ("node-1/node.key", node_keys)):
        file = tmp_path / "keys" / path
        for mode in (0o640, 0o604, 0o660):
            file.chmod(mode)
            with pytest.raises(ft.ConfigError, match="readable by its owner only"):
                check(file.parent)
        file.chmod(0o600)
        assert check(file.parent)
    (tmp_path / "keys/server/server.crt").unlink()
    with pytest.raises(ft.ConfigError, match=r"keys must hold server\.crt"):
        server_keys(tmp_path / "keys/server")


@pytest.mark.parametrize("place", ["", "nodes", "nodes/1.pub", "ca.crt", "server.crt"])
def test_keys_that_others_can_write_are_refused(place: str, tmp_path: Path) -> None:
    """Whoever can write there could let a node in, or vouch for another server."""
    make_keys(tmp_path, 1)
    path = tmp_path / "server" / place
    path.chmod(path.stat().st_mode | 0o002)
    with pytest.raises(ft.ConfigError, match=rf"{path} must be writable by its owner only \(chmod go-w"):
        server_keys(tmp_path / "server")
    path.chmod(path.stat().st_mode & ~0o002)
    assert server_keys(tmp_path / "server")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_keys_of_another_user_are_refused(tmp_path: Path) -> None:
    make_keys(tmp_path, 1)
    os.chown(tmp_path / "server/nodes/1.pub", 65534, 65534)
    with pytest.raises(ft.ConfigError, match=r"must belong to you or to root\. It belongs to user 65534"):
        server_keys(tmp_path / "server")


def test_a_pipe_among_the_keys_holds_nobody_up(tmp_path: Path) -> None:
    make_keys(tmp_path, 1)
    os.mkfifo(tmp_path / "server/nodes/2.pub", 0o600)
    with pytest.raises(ft.ConfigError, match="must be plain files"):
        server_keys(tmp_path / "server")


def test_keys_are_never_written_over(keys: Path) -> None:
    with pytest.raises(ft.OutputError, match="a new folder"):
        make_keys(keys, 1)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "fl.example.org", "localhost.example.org", "::"])
def test_without_keys_only_loopback(host: str, tmp_path: Path) -> None:
    assert not is_loopback(host)
    with pytest.raises(ft.ConfigError, match="loopback"):
        ServerPlan(None, host)
    with pytest.raises(ft.ConfigError, match="loopback"):
        NodePlan(None, f"{host}:8000", tmp_path, part=(0, 1))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1"])
def test_loopback_needs_none(host: str, tmp_path: Path) -> None:
    assert ServerPlan(None, host).keys is None
    assert NodePlan(None, f"{host}:8000", tmp_path, part=(0, 1)).keys is None


NODE = ["client", str(EXAMPLE), "--server", "localhost:1", "--state", "OUT", "--insecure"]
WRONG: dict[str, tuple[list[str], str]] = {
    "no keys": (["server", str(EXAMPLE), "--out", "OUT"], "keys must be given"),
    "both": (["server", str(EXAMPLE), "--out", "OUT", "--keys", "KEYS", "--insecure"], "Got both"),
    "insecure elsewhere": (["server", str(EXAMPLE), "--out", "OUT", "--insecure", "--host", "0.0.0.0"], "loopback"),
    "no such keys": (["server", str(EXAMPLE), "--out", "OUT", "--keys", "nowhere"], "public keys"),
    "no such port": (["server", str(EXAMPLE), "--out", "OUT", "--insecure", "--port", "65536"], "port must be"),
    "no such address": (["server", str(EXAMPLE), "--out", "OUT", "--keys", "KEYS", "--host", "192.0.2.7"], "port must"),
    "no client": (["server", str(EXAMPLE), "--out", "OUT", "--insecure", "--clients", "0"], "clients must be"),
    "no patience": (["server", str(EXAMPLE), "--out", "OUT", "--insecure", "--patience", "0"], "patience must be"),
    "a node without data": (NODE, "--part"),
    "a wrong part": ([*NODE, "--part", "2/2"], "part must"),
    "a wrong address": ([*NODE, "--part", "0/2", "--server", "localhost"], "server must"),
    "no such folder": ([*NODE, "--data", "nowhere"], "data must"),
    "no nodes": (["init", "OUT", "--nodes", "0"], "nodes must be"),
    "a wrong host": (["init", "OUT", "--host", "fl.exämple.org"], "host must be"),
    "a trial of nobody": (["trial", "--nodes", "0", "--out", "OUT"], "nodes must be"),
    "a simulation of nobody": (["simulate", str(EXAMPLE), "--nodes", "0"], "nodes must be"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_command_is_one_line(
    case: str, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, expected = WRONG[case]
    places = {"OUT": str(tmp_path / "out"), "KEYS": str(keys / "server")}
    monkeypatch.setattr(sys, "argv", ["fedtempo", "deploy", *(places.get(a, a) for a in arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code in (3, 6)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedtempo: ")
    assert expected in line


def test_few_modules_know_flower() -> None:
    line = re.compile(r"^\s*(from|import) flwr\b", re.MULTILINE)
    knows = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if line.search(path.read_text())}
    assert knows == {
        f"deploy/{name}.py" for name in ("flower", "__init__", "launch/door", "launch/fleet", "launch/member")
    }


# ---------------------------------------------------------------------- certificates that have expired


def test_an_expired_certificate_is_found_before_the_server_starts(tmp_path: Path) -> None:
    make_keys(tmp_path, 1, days=-1.0)
    with pytest.raises(
        ft.ConfigError, match=r"server\.crt must be valid now .* It is valid from .* to \d{4}-\d\d-\d\d"
    ):
        server_keys(tmp_path / "server")
    assert node_keys(tmp_path / "node-1")


@pytest.mark.parametrize(
    ("days", "authority", "reason"),
    [(-1.0, "own", "certificate has expired"), (9.0, "other", "unable to get local issuer"), (9.0, "own", "")],
)
def test_a_node_names_what_is_wrong_with_the_servers_certificate(
    days: float, authority: str, reason: str, tmp_path: Path
) -> None:
    for name in ("own", "other"):
        make_keys(tmp_path / name, 1, days=days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own/server/server.crt", tmp_path / "own/server/server.key")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def greet() -> None:
            with contextlib.suppress(OSError), context.wrap_socket(listening.accept()[0], server_side=True) as secure:
                secure.recv(1)

        greeter = threading.Thread(target=greet)
        greeter.start()
        port, file = listening.getsockname()[1], tmp_path / authority / "node-1/ca.crt"
        expected = pytest.raises(ft.ConfigError, match=reason) if reason else contextlib.nullcontext()
        with expected:
            check_server("127.0.0.1", port, file)
        greeter.join()
    check_server("127.0.0.1", port, file)  # nobody listens now, which is no reason to give up
