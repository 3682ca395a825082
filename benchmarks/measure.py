"""Clocks and scales: rounds of several contenders in turn, and one contender alone in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SAMPLE_EVERY_SECONDS = 0.05
ROOT = Path(__file__).parent.parent


class Timing(NamedTuple):
    """Seconds of every counted round: by the wall clock, and of all processors together."""

    wall: list[float]
    processor: list[float]

    @property
    def median(self) -> float:
        """By the wall clock."""
        return float(np.median(self.wall))


def in_turn(contenders: Mapping[str, Iterator[Any]], rounds: int, warm_up: int = 2) -> dict[str, Timing]:
    """Every contender does a round, again and again; who goes first changes. The first rounds do not count."""
    timings = {name: Timing([], []) for name in contenders}
    names = list(contenders)
    for number in range(warm_up + rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            wall, processor = time.perf_counter(), _tree_seconds(os.getpid())
            next(contenders[name])
            if number >= warm_up:
                timings[name].wall.append(time.perf_counter() - wall)
                timings[name].processor.append(_tree_seconds(os.getpid()) - processor)
    return timings


def ratio(timing: Timing, to: Timing) -> dict[str, float]:
    """Median over median, and the least and the middle of the quotients round by round."""
    quotients = np.array(timing.wall) / np.array(to.wall)
    low, middle, high = np.quantile(quotients, [0.25, 0.5, 0.75])
    of_processors = float(np.median(timing.processor) / max(np.median(to.processor), 1e-9))
    return {
        "of_medians": timing.median / to.median,
        "median": float(middle),
        "lower_quartile": float(low),
        "upper_quartile": float(high),
        "processor_time": of_processors,
    }


def tree(process: int) -> list[int]:
    """A process and all below it, whichever thread started them."""
    found, waiting = [], [process]
    while waiting:
        found.append(waiting.pop())
        # A process may end between any two of these looks, its folder too.
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{found[-1]}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    waiting += [int(child) for child in children.read_text().split()]
    return found


def session(process: int) -> list[int]:
    """All processes of the session that this one began, those too whose parents have ended."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, leader = place.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(leader) == process and state != "Z":
            found.append(int(place.parent.name))
    return found


def _tree_seconds(process: int) -> float:
    """Processor time of a process and its children."""
    ticks = 0
    for member in tree(process):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def tree_memory(process: int) -> int:
    """Bytes of memory of a process and its children; pages they share count once."""
    total = 0
    for member in tree(process):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def alone(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module in a process of its own; what it prints as JSON, and the most memory its tree ever had."""
    command = [sys.executable, "-m", module, *arguments]
    started = time.time()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BENCH_STARTED": repr(started)}
    most = 0
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            most = max(most, tree_memory(process.pid))
            time.sleep(SAMPLE_EVERY_SECONDS)
        printed = process.stdout.read() if process.stdout else ""
    if process.returncode:
        return {"failed": process.returncode}
    return {**json.loads(printed.strip().splitlines()[-1]), "peak_memory": most}
