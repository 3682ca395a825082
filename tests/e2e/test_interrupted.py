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

from tests import ROOT
from tests.slow import slow_but

EXAMPLE = ROOT / "examples" / "feddecay.toml"
# A program that was started in the background has been told to ignore Ctrl-C, and its children inherit that.
HEEDS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
PROGRAM = [sys.executable, "-c", HEEDS + "from fedtempo.cli import main; main()"]


def command(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


WAYS = [(signal.SIGINT, "processes"), (signal.SIGTERM, "vectorised"), (signal.SIGINT, "vectorised")]
WAYS.append((signal.SIGTERM, "processes"))


@pytest.mark.parametrize("way", slow_but(WAYS[:2], WAYS, "three programs; both signals and backends run every time"))
def test_stopped_and_resumed(way: tuple[signal.Signals, str], tmp_path: Path) -> None:
    number, backend = way
    settings = ["--set", "rounds=30", "--set", "evaluation.every=2", "--backend", backend]
    process = command("run", str(EXAMPLE), *settings, "--out", str(tmp_path / "run"))
    try:
        assert process.stderr is not None
        assert any("round 2/" in line for line in process.stderr)
        began = time.monotonic()
        process.send_signal(number)
        _, error = process.communicate(timeout=30)
        assert time.monotonic() - began < 5
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert error.splitlines()[-1] == "fedtempo: interrupted"
    resumed, _ = command("resume", str(tmp_path / "run"), "--json").communicate(timeout=120)
    whole, _ = command("run", str(EXAMPLE), *settings, "--json").communicate(timeout=120)
    assert json.loads(resumed)["digest"] == json.loads(whole)["digest"]
    assert json.loads(resumed)["scores"] == json.loads(whole)["scores"]
