"""Programs that start a Ray cluster, join one, or are stopped: the serial digest, and nothing left of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import ROOT
from tests.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.slow("each starts, joins or kills a whole Ray cluster"),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: fedtempo[ray]"),
]
EXAMPLE = ROOT / "examples" / "feddecay.toml"
# A program that was started in the background has been told to ignore Ctrl-C, and its children inherit that.
HEEDS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
PROGRAM = [sys.executable, "-c", HEEDS + "from fedtempo.cli import main; main()"]
RAY = [sys.executable, "-m", "ray.scripts.scripts"]


def environment(folder: Path) -> dict[str, str]:
    """Temporary files in a folder of the test's own; Ray on loopback."""
    quiet = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_worker_niceness": "0",
    }
    return {**os.environ, **quiet, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder with a name short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="ft") as name:
        yield Path(name)


def command(folder: Path, *arguments: str, rounds: int = 3) -> subprocess.Popen[str]:
    settings = ["run", str(EXAMPLE), "--set", f"rounds={rounds}", "--set", "evaluation.every=2", *arguments]
    return subprocess.Popen(
        [*PROGRAM, *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(folder),
    )


def digest(folder: Path, *arguments: str, rounds: int = 3) -> str:
    process = command(folder, "--json", *arguments, rounds=rounds)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    found: str = json.loads(output)["digest"]
    return found


def descendants(process: int) -> list[int]:
    found, waiting = [], [process]
    while waiting:
        try:
            path = Path(f"/proc/{waiting[-1]}/task/{waiting[-1]}/children")
            children = [int(child) for child in path.read_text().split()]
        except OSError:
            children = []
        waiting.pop()
        found += children
        waiting += children
    return found


def listening(processes: list[int]) -> set[str]:
    """The addresses that processes listen at, in the kernel's notation."""
    inodes = set()
    for process in processes:
        for entry in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(os.readlink(entry))  # noqa: PTH115
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                found.add(fields[1].rpartition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left(folder: Path) -> list[str]:
    """What is in the folder but torch's own cache, which a run without Ray makes too."""
    return [path.name for path in folder.iterdir() if not path.name.startswith("torchinductor")]


def test_a_cluster_of_our_own_is_on_loopback_and_leaves_nothing(folder: Path) -> None:
    with command(folder, "--backend", "ray", "--set", "workers=2", rounds=100) as process:
        assert process.stderr is not None
        assert any("round 2/" in line for line in process.stderr)
        members = descendants(process.pid)
        addresses = listening([process.pid, *members])
        assert left(folder)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert len(members) >= 4
    assert addresses
    assert addresses <= LOOPBACK
    assert until(lambda: not any(alive(member) for member in members))
    assert not left(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_leaves_nothing_but_its_rounds(number: signal.Signals, folder: Path) -> None:
    out = folder / "run"
    with command(folder, "--backend", "ray", "--set", "workers=2", "--out", str(out), rounds=400) as process:
        assert process.stderr is not None
        assert any("round 2/" in line for line in process.stderr)
        members = descendants(process.pid)
        os.kill(process.pid, number)
        process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert until(lambda: not any(alive(member) for member in members))
    assert left(folder) == ["run"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture
def head(folder: Path) -> Iterator[tuple[int, int]]:
    """A cluster that somebody else started: its port, and that of its client server."""
    port, client = free_port(), free_port()
    arguments = [f"--port={port}", f"--ray-client-server-port={client}", "--num-cpus=2", "--include-dashboard=false"]
    with subprocess.Popen(
        [*RAY, "start", "--head", *arguments, "--disable-usage-stats", f"--temp-dir={folder}/ray", "--block"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(folder),
    ) as process:
        try:
            assert until(lambda: answers(port) and answers(client))
            yield port, client
        finally:
            members = descendants(process.pid)
            process.terminate()
            process.wait(timeout=PATIENCE)
            for member in members:
                if not until(lambda member=member: not alive(member)):
                    os.kill(member, signal.SIGKILL)


def test_a_cluster_that_is_there_is_joined_and_left_running(head: tuple[int, int], folder: Path) -> None:
    port, client = head
    expected = digest(folder, "--backend", "serial")
    assert digest(folder, "--backend", "ray", "--ray-address", f"127.0.0.1:{port}") == expected
    assert digest(folder, "--backend", "serial", "--ray-address", f"ray://127.0.0.1:{client}") == expected
    assert answers(port)
    os.environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
    try:
        assert digest(folder, "--backend", "ray") == expected
    finally:
        del os.environ["RAY_ADDRESS"]
    assert answers(port)


def test_an_address_that_leads_nowhere_is_said(folder: Path) -> None:
    process = command(folder, "--backend", "ray", "--ray-address", f"127.0.0.1:{free_port()}")
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert "ray_address must lead to a Ray cluster" in errors


def test_a_head_that_dies_is_one_line_and_the_run_goes_on_elsewhere(head: tuple[int, int], folder: Path) -> None:
    """Ray ended the program after a minute, with words of its own and code 1."""
    expected, out = digest(folder, "--backend", "serial", rounds=300), folder / "run"
    there = ["--backend", "ray", "--ray-address", f"127.0.0.1:{head[0]}", "--out", str(out)]
    with command(folder, *there, rounds=300) as process:
        assert process.stderr is not None
        assert any("round 2/" in line for line in process.stderr)
        for member in descendants(os.getpid()):
            if "gcs_server" in Path(f"/proc/{member}/cmdline").read_text():
                os.kill(member, signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 7, errors
    assert "the head of the Ray cluster is gone" in errors
    assert f"go on with: fedtempo resume {out}" in errors
    resumed = subprocess.run(
        [*PROGRAM, "resume", str(out), "--backend", "serial", "--json"],
        capture_output=True,
        text=True,
        env=environment(folder),
        timeout=PATIENCE,
        check=True,
    )
    assert json.loads(resumed.stdout)["digest"] == expected
