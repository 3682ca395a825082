"""A real deployment on loopback that a test can act on while it runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import fedtempo as ft
from fedtempo.config import ExperimentFile, settings_of
from fedtempo.deploy.flower_programs import NodePlan, ServerLaunch, ServerPlan, prepare_server, start_node
from fedtempo.deploy.keys import make_keys
from fedtempo.deploy.processes import ProcessGroup, Running, free_port


def left_over(folder: Path) -> list[str]:
    """Command lines of processes that name this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and int(process.name) != os.getpid():
            found.append(line)
    return found


class Stage:
    """A server that listens, and nodes that hold a part each unless they are not to be started."""

    def __init__(
        self,
        folder: Path,
        file: ExperimentFile,
        processes: ProcessGroup,
        nodes: int = 2,
        start: bool = True,
        patience: float = 300.0,
    ) -> None:
        make_keys(folder / "keys", nodes)
        self.folder, self.file, self.processes = folder, file, processes
        self.plan = ServerPlan(str(folder / "keys" / "server"), port=free_port(), patience=patience)
        self.lines: list[str] = []
        prepare_server(folder / "run", file, self.plan)
        self.server = ServerLaunch(folder / "run", file, self.plan, processes)
        self.link = self.server.start()
        self.nodes = [self.node(number, (number - 1, nodes)) for number in range(1, nodes + 1) if start]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.plan.port}"

    def node(self, number: int, part: tuple[int, int], keys: Path | None = None) -> Running:
        keys = keys or self.folder / "keys" / f"node-{number}"
        return start_node(self.file, NodePlan(keys, self.address, self.folder / f"node-{number}", part), self.processes)

    def run(self, act: Callable[[str], None]) -> None:
        """Follow the run and act on its lines."""

        def tell(line: str) -> None:
            self.lines.append(line)
            act(line)

        self.server.run(tell)

    def failures(self) -> list[tuple[int, int, str]]:
        rounds = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        return [(r["round"], f["client"], f["reason"]) for r in rounds for f in r["failures"]]

    def digest(self) -> str:
        return str(json.loads((self.folder / "run" / "summary.json").read_text())["digest"])


def simulated(file: ExperimentFile) -> str:
    return ft.run(**settings_of(file)).digest()
