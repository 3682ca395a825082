"""A run is known by its settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fedtempo as ft
from fedtempo.papers.framework.definitions import key_of
from tests.unit.papers.framework.small_runs import QUADRATIC


def test_another_setting_is_another_run() -> None:
    runs = QUADRATIC.runs(QUADRATIC.scales["smoke"], 0)
    keys = {key_of("a", run, 0) for run in runs} | {key_of("a", runs[0], 1), key_of("b", runs[0], 0)}
    longer = replace(runs[0], settings={**runs[0].settings, "rounds": 25})
    assert len(keys | {key_of("a", longer, 0)}) == len(runs) + 3


def test_settings_that_do_not_print_are_refused() -> None:
    run = replace(QUADRATIC.runs(QUADRATIC.scales["smoke"], 0)[0], settings={"loss": object()})
    with pytest.raises(ft.ConfigError, match="values that print"):
        key_of("a", run, 0)
