"""Runs in the repository: pages come from them without training, and unfinished work goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.papers import reproduce
from fedtempo.papers.framework.definitions import Calculation, Measured, Scale, TunedSetting, Tuning, sized
from fedtempo.papers.framework.pages import outcome_record
from fedtempo.papers.framework.stored import read_stored_runs
from fedtempo.papers.framework.stored_outcome import stored_outcome
from tests.unit.papers.framework.test_choosing import BEST, MEDIUM, TUNED, TUNING, VALUES, measure


def not_again(label: str, rate: float, seed: int) -> Measured:
    raise AssertionError(f"{label} at {rate} with seed {seed} was to come from the file")


def changed_code(scale: Scale, seed: int) -> list[Calculation]:
    return [replace(run, compute=not_again) for run in TUNED.runs(scale, seed) if isinstance(run, Calculation)]


def test_pages_come_from_stored_runs_without_training(tmp_path: Path) -> None:
    stored = tmp_path / "tuned.json"
    first = reproduce(TUNED, "medium", tmp_path / "one", processes=1, stored=stored, provenance="then")
    text = stored.read_text()
    again = stored_outcome(replace(TUNED, runs=changed_code), "medium", stored)
    assert again is not None
    assert json.dumps(outcome_record(TUNED, first)) == json.dumps(outcome_record(TUNED, again))
    reproduce(TUNED, "medium", tmp_path / "two", processes=1, stored=stored, provenance="now")
    assert stored.read_text() == text, "nothing new, so nothing is written, and the date stays"
    content = read_stored_runs(stored)
    assert content is not None
    assert content["provenance"] == "then"
    assert {run["seed"] for run in content["runs"] if run["tried"] is not None} == {10_000, 10_001}
    assert {run["seed"] for run in content["runs"] if run["tried"] is None} == {0, 1, 2}


def test_work_goes_on_from_what_is_stored(tmp_path: Path) -> None:
    stored = tmp_path / "tuned.json"
    reproduce(TUNED, "medium", tmp_path / "one", seeds=1, processes=1, stored=stored)
    seen: list[tuple[int, int]] = []
    reproduce(
        TUNED,
        "medium",
        tmp_path / "two",
        seeds=3,
        processes=1,
        stored=stored,
        observe=lambda done, total, name: seen.append((done, total)),
    )
    assert seen[:2] == [(16, 16), (2, 6)], "all trials and the first seed come from the file"
    content = read_stored_runs(stored)
    assert content is not None
    assert content["plan"]["judged_seeds"] == [0, 1, 2]


def test_what_was_run_before_a_failure_is_stored(tmp_path: Path) -> None:
    def broken(scale: Scale, seed: int) -> list[Calculation]:
        runs = [run for run in TUNED.runs(scale, seed) if isinstance(run, Calculation)]
        return [replace(run, compute=not_again) if seed == 1 else run for run in runs]

    stored = tmp_path / "tuned.json"
    with pytest.raises(AssertionError, match="was to come from the file"):
        reproduce(replace(TUNED, runs=broken), "medium", tmp_path / "one", processes=1, stored=stored)
    content = read_stored_runs(stored)
    assert content is not None
    assert [run["seed"] for run in content["runs"] if run["tried"] is None] == [0, 0]
    assert stored_outcome(TUNED, "medium", stored) is None, "three seeds are planned, and one is stored"


def test_runs_of_another_plan_or_of_other_code_are_performed_again(tmp_path: Path) -> None:
    stored = tmp_path / "tuned.json"
    reproduce(TUNED, "medium", tmp_path / "one", processes=1, stored=stored)
    with pytest.raises(AssertionError, match="was to come from the file"):
        reproduce(replace(TUNED, runs=changed_code), "medium", tmp_path / "two", processes=1, stored=stored)
    longer = replace(TUNED, scales={**TUNED.scales, "medium": sized(3, 1, MEDIUM.tuning, MEDIUM.settling, rounds=9)})
    assert stored_outcome(longer, "medium", stored) is None


def test_a_file_that_is_none_of_ours_is_named(tmp_path: Path) -> None:
    assert read_stored_runs(tmp_path / "none.json") is None
    (tmp_path / "some.json").write_text("[")
    with pytest.raises(ft.ConfigError, match=r"some.json cannot be read as stored runs"):
        read_stored_runs(tmp_path / "some.json")


def test_runs_of_other_code_take_the_place_of_the_old_ones(tmp_path: Path) -> None:
    stored, keys = tmp_path / "tuned.json", []
    for folder, runs in (("one", TUNED.runs), ("two", other_code), ("three", other_code)):
        seen: list[tuple[int, int]] = []
        reproduce(
            replace(TUNED, runs=runs),
            "medium",
            tmp_path / folder,
            processes=1,
            stored=stored,
            observe=lambda done, total, name, seen=seen: seen.append((done, total)),
        )
        content = read_stored_runs(stored)
        assert content is not None
        keys.append({run["key"] for run in content["runs"]})
    assert not keys[0] & keys[1] and keys[1] == keys[2]
    assert seen == [(16, 16), (6, 6)], "the third time nothing is left to do"


def other_code(scale: Scale, seed: int) -> list[Calculation]:
    return [replace(run, compute=rewritten) for run in TUNED.runs(scale, seed) if isinstance(run, Calculation)]


def rewritten(label: str, rate: float, seed: int) -> Measured:
    return measure(label, rate, seed)


def test_a_wider_grid_goes_on_from_what_was_tried_and_shows_nothing_before_it_is_tried(tmp_path: Path) -> None:
    stored = tmp_path / "tuned.json"
    reproduce(TUNED, "medium", tmp_path / "one", processes=1, stored=stored)
    tuning = Tuning({label: TunedSetting(label, (0.001, *VALUES)) for label in BEST}, "validation", seeds=TUNING.seeds)
    wider = replace(TUNED, scales={**TUNED.scales, "medium": replace(MEDIUM, tuning=tuning)})
    assert stored_outcome(wider, "medium", stored) is None, "0.001 is not tried yet"
    seen: list[tuple[int, int]] = []
    reproduce(
        wider,
        "medium",
        tmp_path / "two",
        processes=1,
        stored=stored,
        observe=lambda done, total, name: seen.append((done, total)),
    )
    assert seen[0] == (16, 20) and seen[5] == (6, 6), "four new trials; the rates stay, and so do the judged runs"
    assert stored_outcome(wider, "medium", stored) is not None
