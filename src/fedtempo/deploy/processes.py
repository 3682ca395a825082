"""Processes that a deployment starts, each with a log file, and that are stopped with all they have started."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fedtempo.config.own_code import code_folders
from fedtempo.deploy import process_guard
from fedtempo.deploy.leftovers import HOME
from fedtempo.deploy.process_guard import descendants
from fedtempo.errors import TrainingError

STOP_SECONDS = 15.0
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
}


def environment(home: Path, code: Sequence[Path] = (), more: Mapping[str, str] | None = None) -> dict[str, str]:
    """For Flower's programs: its files under `home`, its commands those of this Python, nothing reported home.

    Code that an experiment names is found in these folders, and where this process finds it: never in what was sent.
    """
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    places = [*map(str, (*code, *code_folders())), *filter(None, [os.environ.get("PYTHONPATH")])]
    paths = {"PYTHONPATH": os.pathsep.join(places)} if places else {}
    return {**os.environ, **_QUIET, "PATH": commands, **paths, HOME: str(home.absolute()), **(more or {})}


class Running:
    """A command under a guard, in a group of its own. It ends when this process does, however that ends."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.name, self.log = name, log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._begin = log.stat().st_size if log.exists() else 0
        guarded = [sys.executable, process_guard.__file__, str(os.getpid()), *command]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                guarded, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(env), start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The number of its guard, which is also its group's."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None if it still runs after so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.code

    def kill(self) -> None:
        """End it at once, with all it has started."""
        self._end(descendants(self.pid))

    def stop(self) -> None:
        """Ask it to end, wait, and end what is left of what it has started."""
        family = descendants(self.pid)
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            self.wait(STOP_SECONDS)
        self._end(family)

    def _end(self, family: list[int]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        process_guard.end(family)  # Flower's programs start others in groups of their own
        self._process.wait()

    def output(self) -> str:
        """What it has written to its log so far; a log may hold what earlier processes wrote."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._begin)
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def log_tail(self, lines: int = 3) -> str:
        """The end of its output, as one line."""
        return " | ".join(line.strip() for line in self.output().splitlines() if line.strip())[-200 * lines :]


class ProcessGroup:
    """Processes that end together, whatever happens."""

    def __init__(self) -> None:
        self._running: list[Running] = []

    def start(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> Running:
        """Start a process."""
        self._running.append(Running(name, command, log, env))
        return self._running[-1]

    def named(self) -> dict[int, str]:
        """The names of those that run, by number."""
        return {running.pid: running.name for running in self._running if running.code is None}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in reversed(self._running):
            running.stop()


def free_port() -> int:
    """A port on loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(running: Running, port: int, seconds: float) -> None:
    """Until the process listens on a port of this machine."""
    end = time.monotonic() + seconds
    while True:
        if running.code is not None:
            raise TrainingError(f"{running.name} ended with code {running.code}: {running.log_tail()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        if time.monotonic() > end:
            raise TrainingError(f"{running.name} did not listen on port {port} within {seconds:g} s: see {running.log}")
        time.sleep(0.2)
