"""Flower's own programs, which end with the test that started them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import until

HOME = "FLWR_HOME"


class Programs:
    """Starts programs with a home of their own for Flower's files."""

    def __init__(self, home: Path, more: Mapping[str, str]) -> None:
        self.home = home
        commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "NO_COLOR": "1"}
        self.environment = {**os.environ, **quiet, "PATH": commands, HOME: str(home), **more}
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment
            )
        self.started.append(process)
        return process

    def done(self, command: Sequence[str], log: Path, seconds: float = 120.0) -> str:
        """What a command prints that has to end well."""
        process = self.start(command, log)
        assert process.wait(seconds) == 0, log.read_text()
        return log.read_text()

    def left(self) -> list[int]:
        """Processes whose environment names this home, as all that the programs start have it."""
        mark, found = f"{HOME}={self.home}".encode(), []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found


@contextmanager
def programs(home: Path, **more: str) -> Iterator[Programs]:
    """Flower's programs until the end of the block."""
    running = Programs(home, more)
    try:
        yield running
    finally:
        for process in running.started:
            process.kill()
            process.wait()
        for pid in running.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert until(lambda: not running.left())


def free_port() -> int:
    """A port on loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
