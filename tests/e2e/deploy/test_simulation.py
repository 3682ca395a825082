"""Flower's simulation engine: our apps on its nodes have the digest of our own simulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.config import ExperimentFile, dump, parse, settings_of
from tests.e2e.deploy.experiments import ALGORITHMS, experiment_file

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
