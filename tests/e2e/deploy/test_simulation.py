"""Flower's simulation engine: our apps on its nodes have the digest of our own simulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.config import ExperimentFile, dump, parse, settings_of
from tests.e2e.deploy.experiments import ALGORITHMS, experiment_file
from tests.programs import fedtempo
from tests.waiting import until

pytest.importorskip("flwr")


def on_flower(file: ExperimentFile, folder: Path, *more: str) -> dict[str, object]:
    """`fedtempo deploy simulate` in a process of its own, for Ray and Flower leave threads and handlers behind."""
    (folder / "experiment.toml").write_text(dump(file))
    fedtempo = str(Path(sys.executable).parent / "fedtempo")
    command = [fedtempo, "deploy", "simulate", str(folder / "experiment.toml"), "--json", *more]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=400, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    summary: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return summary


@pytest.mark.slow("starts Flower and its Ray cluster; the same apps run every time in test_loopback")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_flowers_simulation_has_our_digest(name: str, tmp_path: Path) -> None:
    summary = on_flower(experiment_file(name), tmp_path, "--out", str(tmp_path / "run"))
    here = ft.run(**settings_of(experiment_file(name)))
    assert summary["digest"] == here.digest()
    assert here.scores is not None
    assert summary["scores"] == json.loads(json.dumps(here.scores.summary()))
    assert (tmp_path / "run" / "run.sqlite").exists()


@pytest.mark.slow(
    "starts Flower and its Ray cluster; the same server runs every time in tests/unit/deploy/test_node.py"
)
def test_flowers_server_does_not_wait_for_stragglers(tmp_path: Path) -> None:
    values = experiment_file("FedDecay").model_dump(exclude_none=True)
    file = parse({**values, "asynchrony": {"name": "fedbuff", "buffer": 2}})
    summary = on_flower(file, tmp_path, "--out", str(tmp_path / "run"))
    history = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert summary["rounds"] == len(history) == 5
    assert all(report["clients"] == 2 and report["time"] > 0 for report in history)


@pytest.mark.slow("starts Flower and its Ray cluster")
@pytest.mark.skipif(sys.platform != "linux", reason="looks for ports in /proc")
def test_a_simulation_listens_on_loopback_only(tmp_path: Path) -> None:
    """Flower's own start of Ray listens on every interface, where anybody could run code."""
    (tmp_path / "experiment.toml").write_text(dump(experiment_file("FedDecay", rounds=1)))
    mark = f"STARTED_FOR={tmp_path}"
    environment = {**os.environ, "STARTED_FOR": str(tmp_path)}
    program = fedtempo("deploy", "simulate", str(tmp_path / "experiment.toml"), environment=environment)
    seen, outside = set[str](), set[str]()

    def looked() -> bool:
        for address in listening(program.pid, mark):
            (seen if is_loopback(address) else outside).add(address)
        return program.poll() is not None

    watch = threading.Thread(target=lambda: until(looked))
    watch.start()
    output, error = program.communicate()
    watch.join()
    assert program.wait() == 0, output + error
    assert seen and not outside


def listening(program: int, mark: str) -> list[str]:
    """The addresses that a program, and processes with this mark in their environment, listen at: as Linux has them."""
    own = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(process.name) == program or mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                for handle in (process / "fd").iterdir():
                    with suppress(OSError):
                        own.add(str(handle.readlink()))
    lines = [line for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    return [fields[1] for fields in map(str.split, lines) if fields[3] == "0A" and f"socket:[{fields[9]}]" in own]


def is_loopback(address: str) -> bool:
    return address.partition(":")[0] in ("0100007F", "0" * 24 + "01000000", "0" * 16 + "FFFF00000100007F")
