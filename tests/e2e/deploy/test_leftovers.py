"""A deployment's processes end with the server that started them, and a later server finds what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.deploy.leftovers import HOME, RECORD, Known, end_leftovers, started_at, write_record
from tests.waiting import PATIENCE, until

SERVER = """
import sys, time
from pathlib import Path
from fedtempo.deploy.processes import ProcessGroup, environment
folder = Path(sys.argv[1])
detached = "import os, sys, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
between = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {detached!r}]); print('ended', flush=True)"
middle = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {between!r}]); time.sleep(600)"
with ProcessGroup() as processes:
    processes.start("link", [sys.executable, "-c", middle], folder / "log", environment(folder))
    time.sleep(600)
"""


def wait_until(holds: Callable[[], object], seconds: float = PATIENCE) -> None:
    assert until(holds, seconds), "it did not happen in time"


def started_for(folder: Path) -> list[int]:
    """Processes whose environment names this folder, as all of a deployment's do."""
    mark, found = f"{HOME}={folder}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0") and started_at(int(process.name)):
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_server_takes_everything_along(tmp_path: Path) -> None:
    """Also a process in a session of its own whose parent has ended, as Flower's programs start them."""
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path)])
    try:
        log = tmp_path / "log"
        wait_until(lambda: log.exists() and len(log.read_text().split()) == 2)
        # The one between the program and the detached one may take a moment to end.
        wait_until(lambda: len(started_for(tmp_path)) == 3)
        server.send_signal(signal.SIGKILL)
        wait_until(lambda: not started_for(tmp_path))
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    process = subprocess.Popen(command, env={**os.environ, HOME: str(tmp_path)}, start_new_session=True)
    if sys.platform == "linux":
        # For a moment after its start a process has no environment to read.
        wait_until(lambda: process.pid in started_for(tmp_path))
    yield process
    process.kill()
    process.wait()


def orphaned(home: Path) -> None:
    """The record as it is when its owner is gone."""
    content = json.loads((home / RECORD).read_text())
    content["owner"]["started"] = "long ago"
    (home / RECORD).write_text(json.dumps(content))


def test_leftovers_are_ended_and_named(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    known = Known("SuperLink", sleeper.pid, started_at(sleeper.pid))
    write_record(tmp_path, {sleeper.pid: "SuperLink"})
    orphaned(tmp_path)
    assert end_leftovers(tmp_path) == [known]
    assert sleeper.wait(PATIENCE) == -signal.SIGKILL
    assert not (tmp_path / RECORD).exists()
    assert end_leftovers(tmp_path) == []


def test_a_number_given_to_another_process_since_is_left_alone(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    write_record(tmp_path, {sleeper.pid: "SuperLink"})
    orphaned(tmp_path)
    content = json.loads((tmp_path / RECORD).read_text())
    content["processes"][0]["started"] = content["processes"][0]["started"][:-1] + "x"
    (tmp_path / RECORD).write_text(json.dumps(content))
    assert end_leftovers(tmp_path) == []
    assert sleeper.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process was started for")
def test_a_record_cannot_name_a_process_of_another_folder(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (tmp_path / "sent").mkdir()
    write_record(tmp_path / "sent", {sleeper.pid: "SuperLink"})
    orphaned(tmp_path / "sent")
    assert end_leftovers(tmp_path / "sent") == []
    assert sleeper.poll() is None


def test_a_server_that_still_runs_is_not_a_leftover(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    write_record(tmp_path, {sleeper.pid: "SuperLink"})
    content = json.loads((tmp_path / RECORD).read_text())
    content["owner"] = {"name": "server", "pid": os.getppid(), "started": started_at(os.getppid())}
    (tmp_path / RECORD).write_text(json.dumps(content))
    with pytest.raises(ft.OutputError, match=f"is served by {os.getppid()}"):
        end_leftovers(tmp_path)
    assert sleeper.poll() is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"owner": 1, "processes": []}', "[" * 100_000, " " * (2 << 20)])
def test_a_record_that_cannot_be_read_names_nobody(content: str, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(content)
    assert end_leftovers(tmp_path) == []


@pytest.mark.parametrize("pid", [-1, 0, 1, "1", True])
def test_a_record_of_no_process_names_nobody(pid: object, tmp_path: Path) -> None:
    owner = {"name": "server", "pid": 2, "started": ""}
    (tmp_path / RECORD).write_text(json.dumps({"owner": owner, "processes": [{**owner, "pid": pid}]}))
    assert end_leftovers(tmp_path) == []
