"""The figures of the durability page, measured and held to what they must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import figures
from tests.faults.digits_problem import accuracy, without_faults

pytestmark = pytest.mark.slow("measures the figures of the durability page: half an hour")


def test_twenty_kills_of_a_run_with_heads_and_server_adam(tmp_path: Path) -> None:
    found = figures.kill_at_random(tmp_path, figures.HEADS, count=20, seed=1)
    print(found)
    assert found.kills >= 20
    assert found.equal == found.runs
    assert len(set(found.rounds)) > 5, "the moments differ"


@pytest.mark.parametrize("name", figures.KILLED)
def test_a_hundred_kills(name: str, tmp_path: Path) -> None:
    found = figures.kill_at_random(tmp_path, figures.KILLED[name], count=100, seed=2)
    print(name, found)
    assert found.kills >= 100
    assert found.equal == found.runs


def test_nine_hundred_damaged_databases(tmp_path: Path) -> None:
    seen = figures.damaged_databases(tmp_path)
    print(seen)
    assert sum(seen.values()) == 900
    assert seen["wrong"] == 0
    assert seen["refused"] >= 200
    assert seen["stepped back"] > 0


@pytest.mark.parametrize("name", [name for name in figures.FAULTS if name != "none"])
def test_accuracy_with_faults(name: str) -> None:
    sound, row = accuracy(without_faults()), figures.accuracy_row(name)
    print(row)
    assert abs(row.checked - sound) <= 0.02
    assert row.as_if_not_asked
    if name.startswith(("NaN", "infinite")):
        assert row.unchecked.startswith("run stopped")
    if name.startswith("1e6"):
        assert float(row.unchecked) < sound - 0.3


def test_memory_does_not_grow_with_the_clients_seen(tmp_path: Path) -> None:
    found = figures.resident_memory(tmp_path)
    print(found)
    assert found[500][1] > 5 * found[50][1] / 2
    assert found[500][0] <= 1.10 * found[50][0]
