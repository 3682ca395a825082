"""A run that is told to stop ends within five seconds in a folder that can be resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedtempo.training.faultpoints import faults
from tests import ROOT
from tests.programs import fedtempo, fedtempo_ended
from tests.slow import slow_but
from tests.waiting import PATIENCE, allowed, until

EXAMPLE = ROOT / "examples" / "feddecay.toml"
# A program that was started in the background has been told to ignore Ctrl-C, and its children inherit that.
HEEDS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "


WAYS = [(signal.SIGINT, "processes"), (signal.SIGTERM, "vectorised"), (signal.SIGINT, "vectorised")]
WAYS.append((signal.SIGTERM, "processes"))


@pytest.mark.parametrize("way", slow_but(WAYS[1:2], WAYS, "three runs; one of each kind is enough for every time"))
def test_stopped_and_resumed(way: tuple[signal.Signals, str], tmp_path: Path) -> None:
    number, backend = way
    settings = ["--set", "rounds=10", "--set", "evaluation.every=4", "--backend", backend]
    passed: list[str] = []

    def stay(point: str) -> None:
        """However late the signal comes, the run is not over."""
        passed.append(point)
        if passed.count("commit:end") == 8:
            until(lambda: False)

    with faults(stay):
        process = fedtempo("run", str(EXAMPLE), *settings, "--out", str(tmp_path / "run"))
    try:
        assert any("round 4/" in line for line in process.stderr)
        began = time.monotonic()
        process.send_signal(number)
        _, error = process.communicate()
        assert time.monotonic() - began < allowed(5)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert error.splitlines()[-1] == "fedtempo: interrupted"
    resumed = json.loads(fedtempo_ended("resume", str(tmp_path / "run"), "--json").stdout)
    whole = json.loads(fedtempo_ended("run", str(EXAMPLE), *settings, "--json").stdout)
    assert resumed["digest"] == whole["digest"]
    assert resumed["scores"] == whole["scores"]


def test_ctrl_c_right_after_a_commit(tmp_path: Path) -> None:
    """The round is written and Python does not know it yet."""
    short = ["--set", "rounds=4", "--backend", "serial"]
    seen: list[str] = []

    def interrupt(point: str) -> None:
        seen.append(point)
        if seen.count("commit:end") == 2 and point == "commit:end":
            os.kill(os.getpid(), signal.SIGINT)

    with faults(interrupt):
        stopped = fedtempo_ended("run", str(EXAMPLE), *short, "--quiet", "--out", str(tmp_path / "run"))
    assert stopped.returncode == 130, stopped.stderr
    assert stopped.stderr.splitlines()[-1] == "fedtempo: interrupted"
    resumed = json.loads(fedtempo_ended("resume", str(tmp_path / "run"), "--json").stdout)
    whole = json.loads(fedtempo_ended("run", str(EXAMPLE), *short, "--json").stdout)
    assert resumed["digest"] == whole["digest"]


@pytest.mark.parametrize(
    "after", slow_but([0.2, 1.0], [0.2, 0.5, 1.0, 2.0], "a new interpreter each; early and late run every time")
)
def test_ctrl_c_while_the_program_starts(after: float, tmp_path: Path) -> None:
    """From the first line of our own on; what Python does before that is Python's."""
    program = HEEDS + "import fedtempo_command; print('begun', flush=True); fedtempo_command.main()"
    given = [
        "run",
        str(EXAMPLE),
        "--set",
        "rounds=100000",
        "--backend",
        "serial",
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert error.splitlines()[-1] == "fedtempo: interrupted"
    assert "Traceback" not in error
