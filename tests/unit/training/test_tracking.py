"""Trackers as a run sees them: whatever one does, the run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedtempo as ft
from tests import zoo

ROUNDS = 3


def run(*trackers: Any, **changes: Any) -> ft.Result:
    usual = {"algorithm": ft.algorithms.fedavg(lr=0.1, steps=1), "rounds": ROUNDS, "cohort": 2, "backend": "serial"}
    fixed = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "evaluation": None}
    return ft.run(**{**fixed, **usual, **changes}, trackers=trackers)


class Telling:
    """A user's tracker that says at its start what it is told to say."""

    name = "telling"

    def __init__(self, says: object = None, raises: Exception | None = None, fails_at: int | None = None) -> None:
        self.says, self.raises, self.fails_at = says, raises, fails_at
        self.told: list[object] = []

    def start(self, run: ft.trackers.RunInfo) -> Any:
        if self.raises is not None:
            raise self.raises
        return self.says

    def round(self, report: ft.RoundReport) -> None:
        if report.round == self.fails_at:
            raise KeyError("gone")
        self.told.append(report.round)

    def end(self, result: ft.Result | None) -> None:
        self.told.append("end")


def test_a_tracker_that_says_nothing_holds_nothing() -> None:
    mine = Telling()
    run(mine)
    assert mine.told == [0, 1, 2, "end"]


@pytest.mark.parametrize("says", ["two", -1, 1.5, True])
def test_a_tracker_that_says_no_count_is_left_out(says: object) -> None:
    bad, good = Telling(says), Telling(0)
    with pytest.warns(RuntimeWarning, match="'telling' failed .* start must return an int >= 0 or None. Got"):
        assert len(run(bad, good).history) == ROUNDS
    assert bad.told == [] and good.told == [0, 1, 2, "end"]


def test_a_tracker_that_fails_at_its_start_is_left_out() -> None:
    bad, good = Telling(raises=ValueError("boom")), Telling()
    with pytest.warns(RuntimeWarning, match="'telling' failed and is left out from now on: boom"):
        assert len(run(bad, good).history) == ROUNDS
    assert bad.told == [] and good.told == [0, 1, 2, "end"]


def test_a_wrong_setting_of_a_tracker_is_an_error_before_training() -> None:
    with pytest.raises(ft.OutputError, match="taken"):
        run(Telling(raises=ft.OutputError("path is taken.")))


def test_a_tracker_that_fails_on_rounds_of_before_is_left_out(tmp_path: Path) -> None:
    run(out=tmp_path)
    bad = Telling(fails_at=1)
    with pytest.warns(RuntimeWarning, match="'telling' failed") as caught:
        assert len(run(bad, out=tmp_path, resume=True, rounds=ROUNDS + 1).history) == ROUNDS + 1
    assert bad.told == [0] and len(caught) == 1
