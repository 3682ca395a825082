"""A run in a process of its own that dies, or meets a failing disk, at a place the test chooses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.waiting import PATIENCE, until

REFUSED, SURVIVED, UNEXPECTED = 6, 0, 99


def in_child(work: Callable[[], int]) -> tuple[int | None, int | None]:
    """(exit code, signal) of `work` in a fork: its return value is the exit code."""
    child = os.fork()
    if child == 0:
        code = UNEXPECTED
        try:
            code = work()
        finally:
            os._exit(code)
    return _ended(child)


def _ended(child: int) -> tuple[int | None, int | None]:
    _, status = os.waitpid(child, 0)
    return (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)


def can_trace() -> bool:
    """Whether system calls of a child can be made to fail here."""
    if shutil.which("strace") is None:
        return False
    done = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return done.returncode == 0


def in_traced_child(work: Callable[[], int], inject: str, log: Path) -> tuple[int | None, int | None]:
    """As `in_child`, with strace making system calls fail (`fsync:error=EIO:when=3`) or kill (`:signal=KILL`)."""
    child = os.fork()
    if child == 0:
        code = UNEXPECTED
        try:
            os.kill(os.getpid(), signal.SIGSTOP)
            code = work()
        finally:
            os._exit(code)
    os.waitpid(child, os.WUNTRACED)
    call = inject.partition(":")[0]
    tracer = subprocess.Popen(
        ["strace", "-p", str(child), "-o", str(log), "-e", f"trace={call}", "-e", f"inject={inject}"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    assert "attached" in tracer.stderr.readline()
    # strace says so before it has stopped the child; until then the child's state is "T" and not "t".
    assert until(lambda: Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "t")
    os.kill(child, signal.SIGCONT)
    found = _ended(child)
    tracer.communicate(timeout=PATIENCE)
    return found
