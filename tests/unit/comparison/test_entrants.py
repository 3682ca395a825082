"""Contestants and seeds side by side in worker processes: the same numbers as one after the other."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fedtempo.comparison import entrants_of, run_entrants
from fedtempo.comparison.entrants import parse_algorithms
from fedtempo.config import parse
from fedtempo.errors import ConfigError
from fedtempo.training.loop import drained
from tests.unit.comparison.test_comparison import EXPERIMENT


@pytest.mark.slow("two processes that load torch; the pool and the processes of training run every time")
def test_workers_change_nothing(tmp_path: Path) -> None:
    entrants = entrants_of(parse(tomllib.loads(EXPERIMENT)), "fedavg", only=True)
    follow = lambda rounds, total, label: drained(rounds)  # noqa: E731
    alone, labels = run_entrants(entrants, 2, None, follow)
    beside, again = run_entrants(entrants, 2, tmp_path / "out", follow, workers=2)
    assert labels == again == ["fedavg", "fedavg"]
    assert [result.digest() for result in alone] == [result.digest() for result in beside]
    assert {path.name for path in (tmp_path / "out" / "fedavg").iterdir()} == {"seed-0", "seed-1"}


@pytest.mark.parametrize("mark", [":", ";", " ", "+"])
def test_settings_with_another_mark_than_a_comma_between_them_are_told_the_comma(mark: str) -> None:
    with pytest.raises(ConfigError, match=r"must have commas between them \(a:lr=0.1,steps=5\)"):
        parse_algorithms(f"fedavg,feddecay:lr=0.3{mark}beta=0.4")
