"""A real deployment on loopback that a test can act on while it runs: the commands, each in a process of its own."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Self

import pytest

import fedtempo as ft
from fedtempo.config import ExperimentFile, dump, settings_of
from fedtempo.deploy.membership.keys import make_keys
from tests.programs import Forked, fedtempo
from tests.waiting import PATIENCE, until

pytest.importorskip("flwr")
for part in ("serving", "member"):  # loaded once: servers and nodes are forks of this process
    importlib.import_module(f"fedtempo.deploy.launch.{part}")

LISTENING = re.compile(r"listening on (\S+), ")


class Stage:
    """A server that listens, and nodes that hold a part each unless they are not to be started. All ends with it."""

    def __init__(
        self,
        folder: Path,
        file: ExperimentFile,
        nodes: int = 2,
        start: bool = True,
        options: tuple[str, ...] = (),
        secure: bool = True,
    ) -> None:
        self.folder, self.file, self.lines = folder, file, list[str]()
        self.run_folder, self.path = folder / "run", folder / "experiment.toml"
        self.path.write_text(dump(file))
        make_keys(folder / "keys", nodes)
        self.secure = secure
        self.processes: list[Forked] = []
        self.server = self.serve("deploy", "server", self.path, "--out", self.run_folder, "--port", 0, *options)
        self.nodes = [self.node(number, (number - 1, nodes)) for number in range(1, nodes + 1) if start]

    def serve(self, *arguments: object) -> Forked:
        """A server that has begun to listen; `address` is where."""
        how = ("--keys", self.folder / "keys" / "server") if self.secure else ("--insecure",)
        self.server = fedtempo(*map(str, (*arguments, *how)))
        self.processes.append(self.server)
        line = self._read(lambda line: LISTENING.match(line) is not None)
        found = LISTENING.match(line)
        assert found, self.server.communicate()[1]
        self.address = found.group(1)
        return self.server

    def resume(self) -> None:
        """Go on where the server was stopped, at the same address."""
        port = self.address.rpartition(":")[2]
        self.serve("resume", self.run_folder, "--port", port)

    def node(
        self,
        number: int,
        part: tuple[int, int] | None = None,
        keys: Path | None = None,
        options: tuple[object, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Forked:
        """A node that says what it has to say in `node-NUMBER.log`."""
        data = ("--part", f"{part[0]}/{part[1]}") if part else ()
        how = ("--keys", keys or self.folder / "keys" / f"node-{number}") if self.secure else ("--insecure",)
        log = os.open(self.log(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        arguments = (self.path, "--server", self.address, "--state", self.folder / f"node-{number}", *data, *how)
        process = fedtempo(
            "deploy", "client", *map(str, (*arguments, *options)), output=log, error=log, environment=environment
        )
        os.close(log)
        self.processes.append(process)
        return process

    def log(self, number: int) -> Path:
        return self.folder / f"node-{number}.log"

    def said(self, number: int) -> str:
        return self.log(number).read_text(errors="replace") if self.log(number).exists() else ""

    def _read(self, enough: Callable[[str], bool]) -> str:
        """The server's lines up to one that is enough, or to its end."""
        watch = Timer(PATIENCE, self.server.kill)
        watch.start()
        try:
            for line in self.server.stdout:
                self.lines.append(line.rstrip("\n"))
                if enough(self.lines[-1]):
                    return self.lines[-1]
            return ""
        finally:
            watch.cancel()

    def until_line(self, part: str) -> str:
        """Follow the run to a line with this text."""
        return self._read(lambda line: part in line)

    def run(self, act: Callable[[str], None] = lambda line: None) -> int:
        """Follow the run to the end of the server, act on its lines, and return the exit code."""

        def on(line: str) -> bool:
            act(line)
            return False

        self._read(on)
        self.errors = self.server.stderr.read()
        return self.server.wait()

    def failures(self) -> list[tuple[int, int, str]]:
        rounds = [json.loads(line) for line in (self.run_folder / "metrics.jsonl").read_text().splitlines()]
        return [(r["round"], f["client"], f["reason"]) for r in rounds for f in r["failures"]]

    def digest(self) -> str:
        return str(json.loads((self.run_folder / "summary.json").read_text())["digest"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
        assert until(lambda: all(process.poll() is not None for process in self.processes))
        for process in self.processes:
            process.stdout.close()
            process.stderr.close()


def simulated(file: ExperimentFile) -> str:
    return ft.run(**settings_of(file), progress=False).digest()
