"""Contestants and seeds side by side in worker processes: the same numbers as one after the other."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fedtempo.comparison import entrants_of
from fedtempo.config import parse
from fedtempo.errors import OutputError
from fedtempo.study.plain import run_plainly
from fedtempo.training.loop import drained
from fedtempo.training.view import Run
from tests.unit.comparison.test_comparison import EXPERIMENT


def digests(folder: Path, workers: int, experiment: str = EXPERIMENT) -> list[str | None]:
    entrants = entrants_of(parse(tomllib.loads(experiment)), "fedavg", only=True)
    runs = run_plainly(entrants, 2, folder, lambda rounds, total, label: drained(rounds), workers)
    assert [run.label for run in runs] == ["fedavg", "fedavg"]
    return [Run.of(run.folder).digest for run in runs]


@pytest.mark.slow("two processes that load torch; the pool and the processes of training run every time")
def test_workers_change_nothing(tmp_path: Path) -> None:
    assert digests(tmp_path / "alone", 1) == digests(tmp_path / "beside", 2)
    assert {path.name for path in (tmp_path / "beside" / "fedavg").iterdir()} == {"seed-0", "seed-1"}


def test_a_folder_of_another_experiment_is_refused_and_the_same_one_is_read(tmp_path: Path) -> None:
    first = digests(tmp_path, 1)
    assert digests(tmp_path, 1) == first
    with pytest.raises(OutputError, match="seed 0, fedavg: "):
        digests(tmp_path, 1, EXPERIMENT.replace("lr = ", "lr = 1"))
