"""The figures of the durability page, measured and held to what they must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import figures
from tests.faults.damaged_copies import damaged_copies
from tests.faults.digits_problem import accuracy, without_faults

pytestmark = pytest.mark.slow("measures the figures of the durability page: half an hour")


def test_forty_kills_over_four_runs(tmp_path: Path) -> None:
    found = figures.forty_kills(tmp_path)
    print(found)
    assert sum(each.kills for each in found.values()) >= 40
    assert all(each.equal == each.runs for each in found.values())
    assert len({moment for each in found.values() for moment in each.rounds}) > 5, "the moments differ"


@pytest.mark.parametrize("name", figures.KILLED)
def test_a_hundred_kills(name: str, tmp_path: Path) -> None:
    found = figures.kill_at_random(tmp_path, figures.KILLED[name], count=100, seed=2)
    print(name, found)
    assert found.kills >= 100
    assert found.equal == found.runs


def test_eight_hundred_damaged_copies(tmp_path: Path) -> None:
    """Bytes, logs and pages: damaged, of other runs, of other moments."""
    seen = damaged_copies(tmp_path)
    print(seen)
    assert sum(counts.total() for counts in seen.values()) == 800
    for kind, counts in seen.items():
        assert counts["another digest"] == 0, kind
        assert counts["another exception"] == 0, kind
    assert seen["log of another run"]["refused"] > 50
    assert seen["log: cut short"]["rounds back, told"] > 30


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
