"""`auto` finds out from the first clients whether workers pay; the bits are the same either way."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.backends import calibration
from tests import zoo
from tests.slow import slow_but

SETTINGS: dict[str, Any] = {"rounds": 4, "cohort": 6, "batch_size": 4, "seed": 1, "block": 1}


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtempo.backends.choice._processors", lambda: 2)


def run(name: str, **settings: Any) -> ft.Result:
    return ft.run(
        model=zoo.model("mlp"), data=zoo.data("mlp"), algorithm=zoo.ALGORITHMS[name], **{**SETTINGS, **settings}
    )


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
@pytest.mark.parametrize(
    "name", slow_but(["fedper"], ["fedavg", "fedper", "scaffold", "ditto"], "a shared and a kept part run")
)
def test_workers_that_start_in_the_middle_of_a_round_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = run(name, workers=1)
    for seconds in (0.0, 3600.0):
        monkeypatch.setattr(calibration, "ROUND_SECONDS", seconds)
        monkeypatch.setattr(calibration, "START_SECONDS", seconds)
        monkeypatch.setattr(calibration, "LEAST_SECONDS", 0.0)
        result = run(name)
        assert result.digest() == alone.digest()
        assert [r.costs for r in result.history] == [r.costs for r in alone.history]
        assert "calibrated: " in result.ran_as and "6 a round" in result.ran_as
        assert ("in 2 processes" in result.ran_as) == (seconds == 0.0)
    assert not multiprocessing.active_children()


def test_what_is_asked_for_is_not_measured() -> None:
    assert "calibrated" not in run("fedavg", workers=1).ran_as
    assert "calibrated" not in run("fedavg", backend="serial").ran_as
    assert "calibrated" not in run("fedavg", block=6).ran_as


def test_a_run_says_what_it_found_where_it_is_kept(tmp_path: Any) -> None:
    result = run("fedavg", out=tmp_path / "run")
    assert "calibrated: " in result.ran_as
    result.export(tmp_path / "run")
    assert result.ran_as in (tmp_path / "run" / "summary.json").read_text()


def test_an_error_in_a_timed_client_comes_through() -> None:
    with pytest.raises(ft.TrainingError, match="Lower the learning rate"):
        ft.run(
            model=zoo.model("mlp"), data=zoo.data("mlp"), algorithm=ft.algorithms.fedavg(lr=1e30, steps=5), **SETTINGS
        )


def test_a_finished_run_that_is_resumed_starts_no_workers(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run("fedavg", out=tmp_path / "run")
    monkeypatch.setattr("fedtempo.backends.processes.Processes.__enter__", lambda self: pytest.fail("workers started"))
    again = run("fedavg", out=tmp_path / "run", resume=True)
    assert again.digest() == first.digest() and "in this process" in again.ran_as
