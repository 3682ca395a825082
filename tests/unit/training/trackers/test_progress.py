"""Progress on the screen."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedtempo as ft
from tests.unit.training.trackers.test_trackers import settings


def test_progress_without_a_terminal_prints_lines(capsys: pytest.CaptureFixture[str]) -> None:
    ft.run(**settings(), trackers=[ft.trackers.progress("small")])
    lines = [line for line in capsys.readouterr().err.splitlines() if "round " in line]
    assert [line.split()[2] for line in lines] == ["1/6", "3/6", "6/6"]
    assert lines[0].startswith("small: round 1/6 loss ")
    assert "accuracy" in lines[1]


def test_progress_of_a_resumed_run_starts_where_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = ft.train(**settings(), out=tmp_path)
    for _ in range(4):
        next(rounds)
    rounds.close()
    ft.run(**settings(), out=tmp_path, resume=True, trackers=["progress"])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("round ")]
    assert [line.split()[1] for line in lines] == ["5/6", "6/6"]
