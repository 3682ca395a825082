"""A run is known by what was run, and not by how the code that runs it is written."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.papers.framework.definitions import Calculation, Measured
from fedtempo.papers.framework.keys import key_of, plain
from tests.frozen import keys
from tests.unit.papers.framework.small_runs import QUADRATIC

RUNS = QUADRATIC.runs(QUADRATIC.scales["smoke"], 0)


def test_another_setting_is_another_run() -> None:
    found = {key_of("a", run, 0) for run in RUNS} | {key_of("a", RUNS[0], 1), key_of("b", RUNS[0], 0)}
    longer = replace(RUNS[0], settings={**RUNS[0].settings, "rounds": 25})
    assert len(found | {key_of("a", longer, 0), key_of("a", RUNS[0], 0, measure=2)}) == len(RUNS) + 4


def test_settings_that_do_not_print_are_refused() -> None:
    for wrong in ({"loss": object()}, {"loss": lambda outputs, targets: outputs}):
        with pytest.raises(ft.ConfigError, match="values that print"):
            key_of("a", replace(RUNS[0], settings=wrong), 0)


def written(text: str) -> Calculation:
    """A calculation whose code is this text."""
    scope: dict[str, Any] = {"Measured": Measured}
    exec(f"def measure(rate: float) -> Measured:\n    '''{text}'''\n    return Measured({{'x': rate}})", scope)
    return Calculation("one", {"rate": 0.1}, scope["measure"])


def test_how_the_code_is_written_changes_no_key() -> None:
    assert key_of("a", written("Before."), 0) == key_of("a", written("After, in other words."), 0)
    at_rates = [functools.partial(written("").compute, rate=rate) for rate in (0.1, 0.2)]
    assert plain(at_rates[0]) == {"name": "measure", "rate": 0.1}
    one, other = (key_of("a", Calculation("one", {}, at), 0) for at in at_rates)
    assert one != other, "what a measure is given is part of what was run"


@dataclass(frozen=True)
class Before:
    size: int


@dataclass(frozen=True)
class After:
    size: int
    added: float = 0.5


def test_a_new_field_with_a_default_changes_no_key() -> None:
    assert plain(Before(3))["fields"] == plain(After(3))["fields"] == {"size": 3}  # type: ignore[index]
    assert plain(After(3, 0.7))["fields"] == {"size": 3, "added": 0.7}  # type: ignore[index]


def run(label: str, key: str) -> dict[str, Any]:
    return {"label": label, "tried": None, "seed": 0, "key": key}


def test_only_runs_with_the_key_of_that_code_get_todays() -> None:
    content = {"runs": [run("a", "old a"), run("b", "much older"), run("c", "new c"), run("d", "old d")]}
    before = {(label, None, 0): f"old {label}" for label in "abcd"}
    now = {(label, None, 0): f"new {label}" for label in "abc"}
    kept = list(keys.migrated(content, before, now))
    assert [one["key"] for one in content["runs"]] == ["new a", "much older", "new c", "old d"]
    assert kept == ["b, seed 0: its key is of other code", "d, seed 0: its key is of other code"]


OF_OTHER_CODE = {"clock-phones", "clock-stragglers", "pflego-mnist-high", "pflego-mnist-medium", "pflego-mnist-none"}
"""Their runs were stored by code that has changed since: they are shown, and run again where somebody asks for them."""


@pytest.mark.slow("it makes every run of 38 studies; a change of what a key is made of is seen by the others")
def test_stored_runs_have_todays_keys() -> None:
    files = sorted(path for path in keys.RUNS.glob("*.json") if path.stem not in OF_OTHER_CODE)
    for path, now in keys.keys_by(keys.ROOT / "src", files).items():
        content = keys.json.loads(keys.Path(path).read_text(encoding="utf-8"))
        assert not list(keys.migrated(content, {}, now))
