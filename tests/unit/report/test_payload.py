"""The numbers of a report: which are in it, and how they are thinned."""

from __future__ import annotations

import pytest

import fedtempo as ft
from fedtempo.federation.costs import Costs
from fedtempo.report import report
from fedtempo.report.payload import MOST_ROUNDS, payload
from fedtempo.server.sums import Failure
from fedtempo.training.round_report import RoundReport, from_json, to_json
from fedtempo.training.trackers.numbers import numbers
from tests.unit.report.pages import numbers_in


def test_the_page_holds_the_results_numbers(result: ft.Result) -> None:
    page = report([ft.Run.of(result, "decay")], title="A title")
    (run,) = numbers_in(page)["runs"]
    assert result.scores is not None
    mean = result.scores.new_after.summary("accuracy")["mean"]  # type: ignore[union-attr]
    assert run["final"]["scores"]["accuracy"]["new_after"]["mean"] == pytest.approx(mean, rel=1e-5)
    assert run["curve"]["round"] == [2, 4]
    assert run["rounds"]["bytes"][-1] == result.costs.bytes
    assert run["digest"] == result.digest()
    assert result.digest() in page
    assert run["users"]["existing"]["count"] == 16


def test_the_schedules_drawn_are_the_schedules_used(result: ft.Result) -> None:
    plan = numbers_in(report([ft.Run.of(result)]))["runs"][0]["plan"]
    assert plan["first"][0]["lr"] == pytest.approx([0.1 * 0.9**t for t in range(4)])
    assert plan["last"][0]["lr"] == pytest.approx([0.1 * 0.9**t * 0.25 for t in range(4)])
    assert plan["first"][0]["K"] == [3, 3, 3, 3]
    assert plan["inside"]["4"][0]["lr"] == pytest.approx([0.0729 * 0.5**k for k in range(3)])


def test_rounds_left_out_lose_no_counts() -> None:
    history = [
        RoundReport(
            n, 1.0, (1, 2), Costs(steps=4), Costs(steps=4 * (n + 1)), 0.1, {"clipped_steps": 2.0}, (Failure(3, "late"),)
        )
        for n in range(5 * MOST_ROUNDS)
    ]
    values = payload([ft.Run("long", history)], "t")
    (run,) = values["runs"]
    assert len(run["rounds"]["round"]) == MOST_ROUNDS
    assert (run["rounds"]["refused"][-1], run["rounds"]["clipped"][-1]) == (5 * MOST_ROUNDS, 10 * MOST_ROUNDS)
    assert run["rounds"]["asked"][-1] == 15 * MOST_ROUNDS
    assert any("evenly spaced rounds" in note for note in values["notes"])


def test_a_run_that_is_not_finite_still_has_a_page() -> None:
    history = [RoundReport(0, float("nan"), (), Costs(), Costs(), 0.1)]
    assert numbers_in(report([ft.Run("nan", history)]))["runs"][0]["rounds"]["loss"] == [None]
    assert numbers_in(report([ft.Run("none yet", [])]))["runs"][0]["done"] == 0


def test_a_run_with_a_clock_has_its_time_and_energy(result: ft.Result) -> None:
    history = [
        RoundReport(n, 1.0, (1,), Costs(), Costs(), 0.1, time=2.0, energy=3.0, total_time=2.0 * n, total_energy=3.0 * n)
        for n in (1, 2)
    ]
    (timed,) = payload([ft.Run("timed", history)], "t")["runs"]
    assert timed["rounds"]["time"] == [2, 4] and timed["rounds"]["energy"] == [3, 6]
    assert "time" not in numbers_in(report([ft.Run.of(result)]))["runs"][0]["rounds"]
    assert numbers(history[0])["total_time"] == 2.0 and "time" not in numbers(result.history[0])
    assert from_json(to_json(history[1])) == history[1]
