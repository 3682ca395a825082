"""Processes that stand still and clocks that jump: nothing is given up, and no bit changes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.deploy.blueprint import blueprint_of
from fedtempo.deploy.server import Plan, serve_run
from fedtempo.training.prepare import prepare
from tests import ROOT
from tests.e2e.deploy.wires import Wires, nodes_of
from tests.faults.digits_problem import settings as problem
from tests.faults.test_durable import settings

PAUSE = 30.0
RUN = """
import sys, time
import fedtempo as ft
from tests.faults.test_durable import settings
began = time.time()
reports = ft.train(**settings(rounds=300, backend=sys.argv[2], workers=int(sys.argv[3]) or None), out=sys.argv[1])
least = 0.0
while True:
    try:
        print("round", next(reports).round, flush=True)
        least = min(least, *(time.time() - began for _ in range(8)))
    except StopIteration as stop:
        print("digest", stop.value.digest(), "least", least)
        break
"""

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static int calls(void) { static int count; return ++count; }
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, t);
    if (id == CLOCK_REALTIME && calls() / 3 % 2) t->tv_sec -= 3600;
    return result;
}
"""


def start(folder: Path, backend: str = "serial", workers: int = 0, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder), backend, str(workers)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        cwd=ROOT,
        start_new_session=True,
    )


def children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


@pytest.fixture(scope="module")
def whole() -> str:
    return ft.run(**settings(rounds=300)).digest()


@pytest.mark.slow("stops a process for thirty seconds")
@pytest.mark.parametrize("who", ["the run", "its workers"])
def test_stopped_for_thirty_seconds(who: str, tmp_path: Path, whole: str) -> None:
    process = start(tmp_path / "run", *(("serial", 0) if who == "the run" else ("processes", 2)))
    try:
        assert process.stdout is not None
        assert any(line.startswith("round 2") for line in process.stdout)
        targets = [process.pid] if who == "the run" else children(process.pid)
        for target in targets:
            os.kill(target, signal.SIGSTOP)
        time.sleep(PAUSE)
        assert process.poll() is None, "it waits"
        for target in targets:
            os.kill(target, signal.SIGCONT)
        output, _ = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert output.split("digest ")[1].split()[0] == whole


@pytest.mark.slow("compiles a clock of its own and runs under it")
@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_a_clock_that_is_set_back_an_hour_again_and_again(backend: str, tmp_path: Path, whole: str) -> None:
    """Every other look at the wall clock of the whole process, its libraries too, is an hour early."""
    if shutil.which("cc") is None:
        pytest.skip("there is no compiler to make a clock with")
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    workers = 2 if backend == "processes" else 0
    process = start(tmp_path / "run", backend, workers, LD_PRELOAD=str(library))
    output, _ = process.communicate(timeout=240)
    digest, least = output.split("digest ")[1].split(" least ")
    assert float(least) < -3000, "the clock did jump"
    assert digest == whole


def test_no_waiting_looks_at_the_wall_clock() -> None:
    """The wall clock stamps files and certificates; what waits or gives up uses one that cannot be set."""
    stamps = {
        "support/files.py",
        "training/view.py",
        "deploy/membership/keys.py",
        "deploy/launch/door.py",  # Flower's signatures hold for some minutes
        "deploy/launch/fleet.py",
        "deploy/launch/member.py",  # compares its clock with the server's
        "deploy/launch/status.py",
        "cli/reproduce.py",
        "training/trackers/mlflow.py",
    }
    source = ROOT / "src" / "fedtempo"
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if any(word in path.read_text() for word in ("time.time()", "datetime.now", "utcnow", "time_ns("))
    }
    assert found == stamps


@pytest.mark.slow("waits for uploads that are late")
def test_late_uploads_do_not_count_in_their_round_or_the_next(tmp_path: Path) -> None:
    """A node that sends last round's uploads again: refused, and the run is the one without its clients."""
    changes = {"rounds": 3, "backend": "serial", "evaluation": None, "cohorts": [[0, 1, 2, 3, 4]] * 3, "quorum": 1}
    blueprint = blueprint_of(prepare(**problem(**changes)))
    held: list[list[bytes]] = []

    def late(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        if kind != "train" or node != 8:
            return parts
        held.append(parts)
        return held[-2] if len(held) > 1 else []

    result = serve_run(Wires(nodes_of(blueprint, 2, tmp_path), late), blueprint, Plan())
    reasons = [{failure.reason for failure in report.failures} for report in result.history]
    assert reasons == [{"no answer"}, {"another round"}, {"another round"}]
    mine = ft.run(**problem(**{**changes, "cohorts": [[0, 2, 4]] * 3}))
    assert result.digest() == mine.digest()
