"""Runs of a reproduction: in one process or two, kept, repeated, and failing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.papers import SCALES, reproduce
from fedtempo.papers.framework.definitions import Calculation, Measured, Training, TunedSetting, Tuning, sized
from fedtempo.papers.framework.pages import outcome_record
from fedtempo.papers.framework.reproduction import Reproduction
from tests.unit.papers.framework.small_runs import QUADRATIC, digits_runs


def test_numbers_are_the_same_in_one_process_and_in_two(tmp_path: Path) -> None:
    one = reproduce(QUADRATIC, "smoke", tmp_path / "one", processes=1, seeds=2)
    two = reproduce(QUADRATIC, "smoke", tmp_path / "two", processes=2, seeds=2)
    assert json.dumps(outcome_record(QUADRATIC, one)) == json.dumps(outcome_record(QUADRATIC, two))


def test_finished_runs_are_kept_and_damaged_ones_done_again(tmp_path: Path) -> None:
    first = reproduce(QUADRATIC, "smoke", tmp_path, processes=1)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    damaged, gone, *_ = sorted(kept)
    damaged.write_text(damaged.read_text()[:40])
    gone.unlink()
    seen: list[tuple[int, int]] = []
    again = reproduce(
        QUADRATIC, "smoke", tmp_path, processes=2, observe=lambda done, total, _: seen.append((done, total))
    )
    assert seen == [(5, 7), (6, 7), (7, 7)]
    assert again == first
    changed = [path for path, time in kept.items() if path.stat().st_mtime_ns != time]
    assert sorted(changed) == [damaged, gone]


def failing(number: int) -> Measured:
    raise ft.DataError(f"{number} must be smaller. Got {number}.")


def test_an_error_in_a_process_comes_back_with_its_run(tmp_path: Path) -> None:
    runs = [Calculation(f"run {number}", {"number": number}, failing) for number in (1, 2)]
    broken = Reproduction(
        **{**vars(QUADRATIC), "runs": lambda scale, seed: runs, "scales": dict.fromkeys(SCALES, sized(1, 0.1))}
    )
    with pytest.raises(ft.DataError, match=r"run ([12]), seed 0: \1 must be smaller"):
        reproduce(broken, "smoke", tmp_path, processes=2)


def test_no_rate_is_chosen_on_test_rows(tmp_path: Path) -> None:
    def without_validation(scale: object, seed: int) -> list[Training]:
        (run,) = digits_runs(scale, seed)
        return [replace(run, data=replace(run.data, division={"validation": 0.0, "test": 0.2}))]

    tuning = Tuning({"FedAvg": TunedSetting("FedAvg", (0.1,))}, "existing_after/best")
    scales = {**QUADRATIC.scales, "medium": sized(1, 0.1, tuning)}
    untuned = Reproduction(
        **{**vars(QUADRATIC), "runs": without_validation, "scales": scales, "claims": (), "figures": ()}
    )
    with pytest.raises(ft.ConfigError, match="FedAvg, seed 10000: a rate must be chosen on validation rows"):
        reproduce(untuned, "medium", tmp_path, processes=1)
