"""The studies against time: what they run, what is tuned, and what "equal time" means."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.papers.clock import (
    BUFFER,
    MIXING,
    NEW,
    PHONES,
    SECONDS_PER_STEP,
    STRAGGLERS,
    USERS,
    WAIT,
    against_time,
    at_clock,
    straggling,
)
from fedtempo.papers.framework.definitions import Training

CLIENTS = np.arange(4000)


@pytest.fixture(scope="module")
def result() -> ft.Result:
    data = ft.data.load("digits").split(ft.data.iid(6), seed=0, test=0.2, validation=0.2, new_clients=1 / 6)
    return ft.run(
        model=ft.models.mlp(64, [8], 10),
        data=data,
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=2),
        rounds=4,
        devices=ft.devices.constant(seconds_per_step=5.0, joules_per_step=1.0),
        evaluation=ft.Evaluation(every=2),
    )


def scores(result: ft.Result, group: str) -> list[float]:
    found = (report.scores for report in result.history)
    return [one.groups()[group].summary(one.metric)["mean"] for one in found if one is not None]


@pytest.mark.parametrize("study", [PHONES, STRAGGLERS], ids=lambda study: study.name)
def test_every_method_is_tuned_for_the_score_that_is_judged(study: ft.papers.Reproduction) -> None:
    scale = study.scales["medium"]
    assert scale.tuning is not None and scale.seeds >= 5
    assert set(scale.tuning.contestants) == {run.label for run in study.runs(scale, 0)}
    assert len({one.values for one in scale.tuning.contestants.values()}) == 1  # the same budget for all
    assert scale.tuning.column in study.columns


def test_asynchronous_runs_take_as_many_uploads_and_are_scored_as_often() -> None:
    scale = STRAGGLERS.scales["medium"]
    runs = {run.label: run for run in STRAGGLERS.runs(scale, 0)}
    uploads, evaluations = {}, {}
    for label in (WAIT, BUFFER, MIXING):
        run = runs[label]
        assert isinstance(run, Training)
        rule = run.settings.get("asynchrony")
        each = run.settings["cohort"] if rule is None else rule.buffer
        uploads[label] = run.settings["rounds"] * each
        evaluations[label] = run.settings["evaluation"].every * each
    assert len(set(uploads.values())) == len(set(evaluations.values())) == 1


def test_one_phone_in_ten_is_twenty_times_as_slow() -> None:
    speeds = straggling().traits(0, CLIENTS).seconds_per_step
    slow = speeds > 5 * SECONDS_PER_STEP
    assert abs(slow.mean() - 0.1) < 0.02
    assert np.median(speeds[slow]) / np.median(speeds[~slow]) == pytest.approx(20, rel=0.1)


def test_scores_are_read_off_where_the_time_has_passed(result: ft.Result) -> None:
    """A round takes ten seconds, and every second round is scored: at 30 s half of the way between two scores."""
    first, second = scores(result, NEW)
    assert [report.total_time for report in result.history] == [10.0, 20.0, 30.0, 40.0]
    found = at_clock(result, NEW, {"time": 30.0, "energy": 1e9})
    assert found.values[f"{NEW}/at_time"] == pytest.approx((first + second) / 2)
    assert found.values[f"{NEW}/at_energy"] == second


def test_a_method_that_is_slower_than_the_budget_has_no_score(result: ft.Result) -> None:
    assert math.isnan(at_clock(result, USERS, {"time": 19.0}).values[f"{USERS}/at_time"])
    assert at_clock(result, USERS, {"time": 20.0}).values[f"{USERS}/at_time"] == scores(result, USERS)[0]


def test_the_curve_has_the_same_times_for_everybody(result: ft.Result) -> None:
    curve = against_time(result, 40.0).curves["by time"]
    assert curve.x[-1] == 40.0 and np.allclose(np.diff(curve.x), curve.x[0])
    assert (curve.y[0], curve.y[-1]) == tuple(scores(result, USERS))
