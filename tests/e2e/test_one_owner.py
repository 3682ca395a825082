"""A run folder belongs to one process from the first byte on; whoever comes second leaves no trace."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from filelock import FileLock

from fedtempo.training.storage.on_disk import LOCK
from tests.programs import fedtempo, fedtempo_ended

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "feddecay.toml"


def run_into(folder: Path, seed: int) -> list[str]:
    settings = ["--set", "rounds=3", "--set", "evaluation.every=3", "--seed", str(seed), "--quiet"]
    return ["run", str(EXAMPLE), *settings, "--out", str(folder)]


def test_a_run_that_does_not_get_the_folder_writes_nothing(tmp_path: Path) -> None:
    """Somebody else holds the folder and has not come to write anything yet."""
    folder = tmp_path / "run"
    folder.mkdir()
    with FileLock(folder / LOCK):
        refused = fedtempo_ended(*run_into(folder, 7))
    assert refused.returncode == 6
    assert "no other process" in refused.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {LOCK: b""}


@pytest.mark.slow("two whole runs of the command line, again and again, to meet the moment when they collide")
@pytest.mark.parametrize("attempt", range(5))
def test_of_two_runs_at_once_one_wins_and_can_be_resumed(attempt: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    both = {seed: fedtempo(*run_into(folder, seed)) for seed in (1, 2)}
    for process in both.values():
        process.communicate(timeout=240)
    codes = {seed: process.returncode for seed, process in both.items()}
    assert sorted(codes.values()) == [0, 6]
    (winner,) = (seed for seed, code in codes.items() if code == 0)
    assert tomllib.loads((folder / "experiment.toml").read_text())["seed"] == winner
    assert fedtempo_ended("resume", str(folder), "--quiet").returncode == 0
