"""Runs that were repeated, against the stored ones, and how long they will take."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.papers import reproduce
from fedtempo.papers.framework.definitions import Measured
from fedtempo.papers.framework.kept import SeededRun, keep
from fedtempo.papers.framework.probing import timed_seconds, what_is_left
from fedtempo.papers.framework.repeated import in_lines, repetitions, stored_of, take_trials
from fedtempo.papers.framework.running import judged_runs, trial_runs, with_choices
from tests.unit.papers.framework.test_choosing import MEDIUM, TUNED


def repeated(tmp_path: Path) -> tuple[list[SeededRun], Path]:
    """The judged runs of a second time, with the trials of the first, and the file of the first."""
    stored = tmp_path / "tuned.json"
    reproduce(TUNED, "medium", tmp_path / "one", processes=1, stored=stored)
    again = tmp_path / "two"
    take_trials(TUNED, "medium", again, (), stored_of(TUNED, "medium", stored))
    seen: list[tuple[int, int]] = []
    outcome = reproduce(
        TUNED, "medium", again, processes=1, observe=lambda done, total, name: seen.append((done, total))
    )
    assert seen[0] == (16, 16) and seen[1] == (0, 6), "trials are taken, judged runs are performed again"
    return judged_runs(TUNED, with_choices(MEDIUM, outcome.choices), None, again, ()), stored


def test_equal_runs_are_equal_and_a_difference_has_its_run_and_its_size(tmp_path: Path) -> None:
    tasks, path = repeated(tmp_path)
    stored = stored_of(TUNED, "medium", path)
    assert in_lines(*repetitions(tasks, stored)) == ["6 runs compared with the stored ones: 6 equal in every digit"]
    content = json.loads(path.read_text())
    judged = [run for run in content["runs"] if run["tried"] is None]
    judged[0]["values"]["test"] -= 0.25
    judged[1]["values"]["test"] = math.nan
    judged[2]["key"] = "of other settings"
    path.write_text(json.dumps(content))
    lines = in_lines(*repetitions(tasks, stored_of(TUNED, "medium", path)))
    assert lines[:2] == [
        "5 runs compared with the stored ones: 3 equal in every digit",
        "1 not compared: not stored with the same settings",
    ]
    assert lines[2].startswith("test differs in 2, most by +nan (")


def test_a_file_without_runs_of_this_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(ft.ConfigError, match=r"none.json has no runs of tuned with these settings"):
        stored_of(TUNED, "medium", tmp_path / "none.json")


def test_what_is_left_is_told_from_finished_runs(tmp_path: Path) -> None:
    trials, judged = trial_runs(TUNED, MEDIUM, tmp_path), judged_runs(TUNED, MEDIUM, 3, tmp_path, ())
    assert timed_seconds(*what_is_left([*trials, *judged])) is None
    keep(trials[0], Measured(seconds=2.0))
    waiting, timed = what_is_left(trials)
    assert (len(waiting), timed_seconds(waiting, timed)) == (15, 15 * 2.0)
    assert timed_seconds(judged, timed) is None, "a trial may be shorter than a judged run"
    keep(judged[0], Measured(seconds=10.0))
    keep(judged[1], Measured(seconds=30.0))
    waiting, timed = what_is_left(judged)
    assert len(waiting) == 4
    assert timed_seconds(waiting, timed) == 2 * 10.0 + 2 * 30.0, "each label has its own time"


def test_stored_runs_are_not_left_though_older_ones_have_no_time(tmp_path: Path) -> None:
    tasks, path = repeated(tmp_path)
    content = json.loads(path.read_text())
    for run in content["runs"]:
        del run["seconds"]
    path.write_text(json.dumps(content))
    elsewhere = [replace(task, path=tmp_path / "three" / task.path.name) for task in tasks]
    assert what_is_left(elsewhere, stored_of(TUNED, "medium", path)) == ([], [])
