"""The file of one run: what is read is what was written, and long curves become short once."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtempo.papers.framework.definitions import Calculation, Curve, Measured
from fedtempo.papers.framework.kept import MOST_POINTS, SeededRun, keep, kept


def _task(folder: Path) -> SeededRun:
    return SeededRun(Calculation("a", {}, Measured), 0, folder / "key.json")


@pytest.mark.parametrize("length", [0, 1, 2, MOST_POINTS, MOST_POINTS + 1, 2 * MOST_POINTS - 1, 2000])
def test_a_kept_curve_is_short_ends_where_it_ended_and_is_thinned_once(tmp_path: Path, length: int) -> None:
    task, x = _task(tmp_path), tuple(float(place) for place in range(length))
    keep(task, Measured({"v": 0.1 + 0.2}, {"c": Curve(x, x)}))
    first = kept(task.path)
    assert first is not None
    assert first.values == {"v": 0.1 + 0.2}
    assert len(first.curves["c"].x) == min(length, len(first.curves["c"].x)) <= MOST_POINTS
    assert first.curves["c"].x[-1:] == x[-1:]
    assert length > MOST_POINTS or first.curves["c"].x == x
    keep(task, first)
    assert kept(task.path) == first


def test_a_damaged_file_is_no_run(tmp_path: Path) -> None:
    task = _task(tmp_path)
    assert kept(task.path) is None
    task.path.write_text("{")
    assert kept(task.path) is None


def test_users_scores_and_the_time_are_kept(tmp_path: Path) -> None:
    task = _task(tmp_path)
    keep(task, Measured({"v": 1.0}, users={"new_after": ((7, 30, 0.123456), (9, 4, 1.0))}, seconds=61.26))
    again = kept(task.path)
    assert again is not None
    assert again.users == {"new_after": ((7, 30, 0.12346), (9, 4, 1.0))}
    assert again.seconds == 61.3
    assert (again | Measured({"w": 2.0})).seconds == 61.3, "what was timed stays"
