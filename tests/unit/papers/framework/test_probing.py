"""The time of a reproduction, estimated from a few rounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedtempo.papers.framework.probing import estimated_seconds
from fedtempo.papers.framework.running import plan
from tests.unit.papers.framework.small_runs import QUADRATIC, digits_runs


def test_time_is_estimated_from_a_few_rounds(tmp_path: Path) -> None:
    tasks = plan(replace(QUADRATIC, runs=digits_runs), "smoke", 4, tmp_path)
    assert 0 < estimated_seconds(tasks, None, processes=2) < 60
