"""Runs one command and ends it, with all it has started, when the process that asked for it is gone.

    python process_guard.py PARENT COMMAND ARGUMENT ...

A killed parent cannot clean up, so a process of its own does it. This file is run by its path and imports nothing of
FedTempo: it has to start in a moment, and there is one of it for each program of a deployment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from types import FrameType

BETWEEN_LOOKS = 0.2
SET_PARENT_DEATH_SIGNAL = 1
SET_CHILD_SUBREAPER = 36
"""Options of Linux's prctl(2)."""


def descendants(process: int) -> list[int]:
    """All that a process has started and that still runs, children before their children."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found = list(children.get(process, []))
    for member in found:
        found += children.get(member, [])
    return found


def end(processes: list[int]) -> None:
    """Kill processes at once; one that has gone meanwhile, or is not ours, is passed over."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    """A setting of this process in Linux; other systems do without it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_the_guard() -> None:
    _prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def guard(parent: int, command: list[str]) -> int:
    """The command's exit code. Nothing it has started outlives this function."""
    _prctl(SET_CHILD_SUBREAPER, 1)  # what it starts stays our descendant when those in between have ended
    child = subprocess.Popen(command, preexec_fn=_die_with_the_guard)  # noqa: PLW1509 - a guard has no threads

    def pass_on(number: int, frame: FrameType | None) -> None:
        if child.returncode is None:
            child.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    while child.poll() is None and os.getppid() == parent:
        time.sleep(BETWEEN_LOOKS)
    end(descendants(os.getpid()))
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(guard(int(sys.argv[1]), sys.argv[2:]))
