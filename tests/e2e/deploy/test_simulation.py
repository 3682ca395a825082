"""Flower's simulation engine: our apps on its nodes have the digest of our own simulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.config import dump, settings_of
from tests.e2e.deploy.experiments import ALGORITHMS, experiment_file

pytest.importorskip("flwr")


def on_flower(name: str, folder: Path, *more: str) -> dict[str, object]:
    """`fedtempo deploy simulate` in a process of its own, for Ray and Flower leave threads and handlers behind."""
    (folder / "experiment.toml").write_text(dump(experiment_file(name)))
    fedtempo = str(Path(sys.executable).parent / "fedtempo")
    command = [fedtempo, "deploy", "simulate", str(folder / "experiment.toml"), "--json", *more]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=400, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    summary: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return summary


def check(name: str, folder: Path) -> None:
    summary = on_flower(name, folder, "--out", str(folder / "run"))
    here = ft.run(**settings_of(experiment_file(name)))
    assert summary["digest"] == here.digest()
    assert here.scores is not None
    assert summary["scores"] == json.loads(json.dumps(here.scores.summary()))
    assert (folder / "run" / "run.sqlite").exists()


def test_with_personal_heads(tmp_path: Path) -> None:
    check("PFLEGO", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "PFLEGO"])
def test_with_the_other_algorithms(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)
