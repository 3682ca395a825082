"""A whole experiment of one contender: seconds from process start to its results table, and its peak memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments.table import MARK, WEIGHTS
from benchmarks.measure import ROOT, session, tree, tree_memory

SAMPLE_EVERY_SECONDS, GRACE_SECONDS = 0.25, 10.0
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTHONUNBUFFERED": "1",
}


def timed(command: Sequence[str], log: Path, patience: float, **more: str) -> dict[str, Any]:
    """Run a command to its end. Its scores, weights, seconds and peak memory; or why there are none."""
    log.parent.mkdir(parents=True, exist_ok=True)
    weights = log.with_suffix(".npz").resolve()
    weights.unlink(missing_ok=True)
    environment = {**os.environ, **ENVIRONMENT, **more, WEIGHTS: str(weights)}
    started = time.perf_counter()
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    watch = _Watch(process, started, patience)
    try:
        answer = _answer(process, watch)
        process.wait()
    finally:
        _end_all(process)  # of a driver that is told to end, too
        watch.join()
    if answer is None and watch.stopped:
        return {"failed": f"more than {patience:.0f} s, stopped", "stopped_after": patience}
    if answer is None:
        return {"failed": f"ended with code {process.returncode}: {_last_words(log)}"}
    if weights.exists():
        with np.load(weights) as saved:
            answer["weights"] = {name: saved[name] for name in saved.files}
    return answer


def _answer(process: subprocess.Popen[str], watch: _Watch) -> dict[str, Any] | None:
    """What the contender found; the clock stops when its line arrives."""
    assert process.stdout is not None
    answer: dict[str, Any] | None = None
    with process.stdout as lines:
        for line in lines:
            if line.startswith(MARK):
                seconds = watch.stop()
                answer = {**json.loads(line.removeprefix(MARK)), "seconds": seconds, "memory": watch.most}
    return answer


class _Watch(threading.Thread):
    """Looks at the memory of all processes of a contender, and ends them when time is up."""

    def __init__(self, process: subprocess.Popen[str], started: float, patience: float) -> None:
        super().__init__(daemon=True)
        self.process, self.started, self.patience = process, started, patience
        self.most, self.counts, self.stopped = 0, True, False
        self.start()

    def stop(self) -> float:
        """Seconds since the start; memory is not looked at any more."""
        self.counts = False
        return time.perf_counter() - self.started

    def run(self) -> None:
        while self.process.poll() is None:
            if self.counts:
                self.most = max(self.most, tree_memory(self.process.pid))
            if time.perf_counter() - self.started > self.patience:
                self.stopped = True
                _end_all(self.process)
            time.sleep(SAMPLE_EVERY_SECONDS)
        # A child that outlives its parent would hold the pipe open, and the driver would read from it for ever.
        _end_all(self.process)


def _end_all(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started, again until nobody is left: pools replace workers that end."""
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline:
        below = tree(process.pid) if process.poll() is None else []
        if not (members := {*below, *session(process.pid)}):
            return
        for member in members:
            try:
                os.kill(member, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "without a word"
