"""The record of a deployment's processes, and what an earlier server of the same run has left running.

A process is known by its number and the moment it started, so that a number given to another program since is left
alone. On Linux the moment is bound to the machine's boot, and the process must also have been started for this run:
a record in a folder that somebody sent cannot name a process of yours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedtempo.deploy.process_guard import descendants, end
from fedtempo.errors import OutputError, TrainingError

RECORD = "processes.json"
HOME = "FLWR_HOME"
"""The environment variable that holds the folder a process was started for."""
END_SECONDS = 10.0
MOST_BYTES = 1 << 20


class Known(NamedTuple):
    """A process that was started: its name for people, its number, and when it started."""

    name: str
    pid: int
    started: str

    @property
    def runs(self) -> bool:
        """Whether this very process still runs."""
        return bool(self.started) and started_at(self.pid) == self.started


def started_at(pid: int) -> str:
    """When a process started, in words that no other process of this number has; nothing if it does not run."""
    if sys.platform == "linux":
        try:
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except (OSError, ValueError):
            return ""
        return "" if state in "ZX" else f"{boot} {fields[18]}"
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def write_record(home: Path, processes: Mapping[int, str]) -> None:
    """Keep which processes run for this folder, by number and name, with those they have started, and who owns them."""
    family = dict(processes)
    for pid, name in processes.items():
        family |= {member: f"{name}'s process" for member in descendants(pid) if member not in family}
    known = [Known(name, pid, started_at(pid)) for pid, name in family.items()]
    owner = Known("server", os.getpid(), started_at(os.getpid()))
    content = {"owner": owner._asdict(), "processes": [each._asdict() for each in known if each.started]}
    temporary = home / f".{RECORD}.{os.getpid()}"
    temporary.write_text(json.dumps(content, indent=1))
    temporary.replace(home / RECORD)


def end_leftovers(home: Path) -> list[Known]:
    """End what an earlier server of this run has left, and return it. A server that still runs is an error."""
    owner, recorded = _read(home / RECORD)
    if owner is not None and owner.runs and owner.pid != os.getpid():
        raise OutputError(f"the run must not be served by another process. {home.parent} is served by {owner.pid}.")
    left = [known for known in recorded if known.runs and _belongs(known.pid, home)]
    end([member for known in left for member in (known.pid, *descendants(known.pid))])
    until = time.monotonic() + END_SECONDS
    while any(known.runs for known in left):
        if time.monotonic() > until:
            named = ", ".join(str(known.pid) for known in left if known.runs)
            raise TrainingError(f"processes {named}, left by an earlier server of this run, cannot be ended.")
        time.sleep(0.05)
    (home / RECORD).unlink(missing_ok=True)
    return left


def _read(path: Path) -> tuple[Known | None, Iterable[Known]]:
    """Who wrote the record, and the processes in it; one that cannot be read names nobody."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return None, []
        content = json.loads(path.read_text())
        return _known(content["owner"]), [_known(each) for each in content["processes"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None, []


def _known(value: Mapping[str, object]) -> Known:
    pid = value["pid"]
    if not isinstance(pid, int) or pid <= 1:
        raise ValueError("a process must have a number above 1")
    return Known(str(value["name"]), pid, str(value["started"]))


def _belongs(pid: int, home: Path) -> bool:
    """Whether a process was started for this folder, where the system says so."""
    if sys.platform != "linux":
        return True
    try:
        return f"{HOME}={home.absolute()}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
