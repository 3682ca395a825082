"""A reproduction with other settings than its scale's own."""

from __future__ import annotations

import pytest

import fedtempo as ft
from fedtempo.papers import REPRODUCTIONS
from fedtempo.papers.framework.changed import with_settings
from fedtempo.papers.framework.definitions import Training

SHAKESPEARE, HIGH = REPRODUCTIONS["decaying-k-shakespeare"], REPRODUCTIONS["pflego-mnist-high"]


def test_settings_reach_the_runs_and_trials_are_no_longer_than_they() -> None:
    changed = with_settings(SHAKESPEARE, "medium", {"rounds": 40, "k": [2, 3, 4], "cohort": 0.5})
    scale = changed.scales["medium"]
    assert (scale["rounds"], scale["k"], scale["cohort"]) == (40, (2, 3, 4), 0.5)
    assert scale.tuning is not None
    assert scale.tuning.settings["rounds"] == 40
    assert {run.settings["rounds"] for run in changed.runs(scale, 0) if isinstance(run, Training)} == {40}
    assert SHAKESPEARE.scales["medium"]["rounds"] == 500, "the reproduction itself stays"


def test_a_dotted_name_is_a_setting_of_the_network_or_of_a_table() -> None:
    changed = with_settings(HIGH, "medium", {"model.hidden": [32], "degrees.high": 3})
    assert changed.scales["medium"]["model"] == ("mlp", {"hidden": [32]})
    assert changed.scales["medium"]["degrees"]["high"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"round": 3}, "Did you mean 'rounds'"),
        ({"rounds": "many"}, "rounds must be a number, as in 200. Got 'many'."),
        ({"own_classes": 1}, "own_classes must be true or false"),
        ({"rounds.first": 3}, "rounds has no settings of its own"),
    ],
)
def test_what_cannot_be_set(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ft.ConfigError, match=message):
        with_settings(HIGH, "medium", changes)
