"""The protocol: ranges widen until the best is inside, and a run that fails ends no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.errors import TrainingError
from fedtempo.study import Budget, compare_fairly, from_functions, jobs, make_plan, protocol
from fedtempo.study.jobs import FairRun
from fedtempo.study.ranges import beyond, log_range
from fedtempo.tuning.space import Dimension, Range, dimensions_of

SETTINGS: dict[str, Any] = {
    "rounds": 4,
    "cohort": 3,
    "backend": "serial",
    "evaluation": ft.Evaluation(every=1, steps=1),
}


def averaged(lr: float) -> ft.Algorithm:
    return ft.algorithms.fedavg(lr=lr, steps=2)


def decayed(beta: float) -> ft.Algorithm:
    return ft.algorithms.feddecay(lr=0.1, beta=beta, steps=2)


def planned(digits: ft.data.FederatedData, makers: Any, ranges: Any, **budget: Any) -> Any:
    settings = {"model": ft.models.softmax_regression(64, 10), "data": digits, **SETTINGS}
    tunables = from_functions(makers, dimensions_of(ranges), settings)
    return tunables, make_plan(tunables, Budget(**{"trials": 3, "tuning_seeds": 1, "seeds": 2, **budget}), claims=[])


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Trials without training: the score of each is a function of its values."""
    told: dict[str, Any] = {"trials": [], "score": None}

    def perform(run: FairRun) -> None:
        assert run.outcome is not None
        told["trials"].append(dict(run.chosen))
        best = told["score"](run.chosen)
        record = {"values": dict(run.chosen), "seed": run.seed, "best": best, "rounds": 1, "scores": [], "reason": ""}
        run.outcome.parent.mkdir(parents=True, exist_ok=True)
        run.outcome.write_text(json.dumps(record))

    monkeypatch.setattr(FairRun, "perform", perform)
    return told


def tuned(tunables: Any, plan: Any, folder: Path) -> Any:
    return protocol.tune_alike(tunables, plan, folder, 1, lambda done, total, name: None)


def test_a_range_widens_until_the_best_is_inside(
    digits: ft.data.FederatedData, scored: dict[str, Any], tmp_path: Path
) -> None:
    tunables, plan = planned(digits, {"one": averaged, "two": averaged(0.1)}, {"lr": {"log": [0.001, 1.0]}})
    scored["score"] = lambda values: -abs(values["lr"] - 6.0)  # the best of all lies outside
    (found, failed) = tuned(tunables, plan, tmp_path)
    tried = [trial["lr"] for trial in scored["trials"]]
    assert tried == [0.003162, 0.03162, 0.3162, 3.162, 31.62] and found["one"].values == {"lr": 3.162}
    assert not failed and not found["one"].notes and len(found["one"].trials) == 5 and found["two"].values == {}
    again, _ = tuned(tunables, plan, tmp_path)
    # As text: "two" has no score, and since Python 3.13 a record that holds NaN equals no other.
    assert len(scored["trials"]) == 5 and repr(again) == repr(found), "what is done is not tried again"


def test_it_ends_where_the_budget_or_the_contestant_ends(
    digits: ft.data.FederatedData, scored: dict[str, Any], tmp_path: Path
) -> None:
    tunables, plan = planned(digits, {"one": averaged, "two": averaged(0.1)}, {"lr": {"log": [0.001, 1.0]}}, widen=1)
    scored["score"] = lambda values: values["lr"]
    (found, _) = tuned(tunables, plan, tmp_path / "a")
    assert found["one"].values == {"lr": 3.162} and "at an end of what was tried" in found["one"].notes[0]
    scored["trials"].clear()
    tunables, plan = planned(digits, {"one": decayed, "two": averaged(0.1)}, {"beta": {"uniform": [0.4, 1.0]}})
    scored["score"] = lambda values: values["beta"]
    (found, _) = tuned(tunables, plan, tmp_path / "b")
    assert [one["beta"] for one in scored["trials"]] == [0.5, 0.7, 0.9], "1.1 is no share"


def test_of_a_list_of_rates_there_may_be_others_of_another_list_not() -> None:
    points = [{"x": 0.1}, {"x": 0.2}, {"x": 0.4}]
    assert beyond(Dimension("x", (0.1, 0.2, 0.4)), 0.4, points) is None
    rates = [{"algorithm.lr": value} for value in (0.1, 0.2, 0.4)]
    assert beyond(Dimension("algorithm.lr", (0.1, 0.2, 0.4)), 0.4, rates) == 0.8
    assert beyond(Dimension("algorithm.lr", (0.1, 0.2, 0.4)), 0.1, rates) == 0.05
    assert beyond(log_range("x", 0.05, 1.0), 0.2, points) is None
    even = Dimension("x", range=Range(0.0, 3.0, log=False, integer=True))
    assert beyond(even, 2, [{"x": 0}, {"x": 1}, {"x": 2}]) == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_says_why_and_the_others_go_on(
    workers: int, digits: ft.data.FederatedData, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    perform = FairRun.perform

    def failing(run: FairRun) -> None:
        if run.label == "bad" and run.outcome is None and run.seed == 1:
            raise TrainingError("the disk is on fire")
        perform(run)

    monkeypatch.setattr(jobs.FairRun, "perform", failing)
    makers = {"good": averaged(0.1), "bad": averaged(0.2)}
    tunables, plan = planned(digits, makers, {}, widen=0)
    found = compare_fairly(tunables, plan, tmp_path / "out", workers=workers)
    assert found.missing == ("bad, seed 1, judged: the disk is on fire",)
    assert {(run.label, run.seed) for run in found.runs} == {("good", 0), ("good", 1), ("bad", 0)}
    assert "missing: bad, seed 1, judged: the disk is on fire" in found.notes
    monkeypatch.setattr(jobs.FairRun, "perform", perform)
    whole = compare_fairly(tunables, plan, tmp_path / "out", workers=workers)
    assert not whole.missing and len(whole.runs) == 4, "the same call does what is missing"


def test_where_nothing_can_be_judged_the_first_failure_is_the_error(
    digits: ft.data.FederatedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(run: FairRun) -> None:
        raise TrainingError("no memory")

    monkeypatch.setattr(jobs.FairRun, "perform", failing)
    tunables, plan = planned(digits, {"one": averaged(0.1), "two": averaged(0.2)}, {}, widen=0)
    with pytest.raises(TrainingError, match="one, seed 0, judged: no memory"):
        compare_fairly(tunables, plan)


def test_the_plan_says_when_no_difference_can_be_significant(digits: ft.data.FederatedData) -> None:
    tunables, _ = planned(digits, {"one": averaged(0.1), "two": averaged(0.2)}, {}, widen=0)
    plan = make_plan(tunables, Budget(seeds=5, test="sign-flip"))
    (line,) = [line for line in plan.in_words() if line.startswith("a difference")]
    assert line.endswith("with 5 seeds that cannot happen, with 7 it can")  # 2 tests: 2 * 2 / 2^7 < 0.05
    enough = make_plan(tunables, Budget(seeds=7, test="sign-flip"))
    assert "cannot happen" not in " ".join(enough.in_words())
    assert "Student's paired t test" in " ".join(make_plan(tunables, Budget(seeds=2)).in_words())
