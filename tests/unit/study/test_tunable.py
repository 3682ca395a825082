"""What is tuned: default rates, the user's ranges, and what a label fixes itself."""

from __future__ import annotations

import copy
import inspect
import pickle
import tomllib
from typing import Any

import pytest

from fedtempo.algorithms import ALGORITHMS
from fedtempo.comparison.entrants import entrants_of, parse_algorithms
from fedtempo.config import own_code, parse
from fedtempo.errors import ConfigError
from fedtempo.study.ranges import default_ranges, log_range, spread_points
from fedtempo.study.tunable import Tunable, first_values, from_entrants
from fedtempo.tuning.space import Dimension, dimensions_of
from tests.unit.study.test_study import EXPERIMENT


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_code, "_granted", own_code.Granted(modules=("tests",)))


FILE: dict[str, Any] = {
    **tomllib.loads(EXPERIMENT),
    "model": {"name": "mlp", "inputs": 64, "hidden": [8], "outputs": 10},
}


def tunables_of(text: str | None, ranges: dict[str, Any] | None = None, **file: Any) -> dict[str, Tunable]:
    values = {**copy.deepcopy(FILE), **file}
    fixed = {} if text is None else {label: own for label, _, own in parse_algorithms(text)}
    dimensions = dimensions_of(ranges or {})
    entrants = entrants_of(parse(values), text, only=True, rates=first_values(dimensions))
    return {one.label: one for one in from_entrants(entrants, fixed, dimensions)}


def fields_of(tunable: Tunable) -> set[str]:
    return {dimension.name for dimension in tunable.dimensions}


def test_rates_are_tuned_unless_the_label_fixes_them() -> None:
    found = tunables_of("fedavg,fedavg:lr=0.1,pflego,fedadam,fedprox:mu=0.1")
    assert {label: fields_of(one) for label, one in found.items()} == {
        "fedavg": {"algorithm.lr"},
        "fedavg:lr=0.1": set(),
        "pflego": {"algorithm.head_lr", "algorithm.server_lr"},
        "fedadam": {"algorithm.lr", "algorithm.server_lr"},
        "fedprox:mu=0.1": {"algorithm.lr"},
    }


def test_contestants_of_files_can_be_sent_to_other_processes() -> None:
    (tunable,) = tunables_of("pflego").values()
    sent = pickle.loads(pickle.dumps(tunable))
    values = {"algorithm.head_lr": 0.5, "algorithm.server_lr": 0.25}
    assert sent.dimensions == tunable.dimensions
    assert repr(sent.make(values, 3)["algorithm"]) == repr(tunable.make(values, 3)["algorithm"])


def test_wrappers_and_schedules_keep_their_form() -> None:
    product = {
        "schedule": "product",
        "of": [
            {"schedule": "per_round", "value": 0.1, "factor": 0.99},
            {"schedule": "per_step", "value": 1.0, "factor": 0.6},
        ],
    }
    around = {"name": "fedavg", "lr": product, "steps": 2}
    algorithm = {"name": "fednar", "weight_decay": 0.01, "max_norm": 1.0, "around": around}
    found = tunables_of(None, algorithm=algorithm)["fednar"]
    assert fields_of(found) == {"algorithm.around.lr.of.0.value"}
    made = found.make({"algorithm.around.lr.of.0.value": 0.25}, 7)
    assert "per_round(value=0.25, factor=0.99) * per_step(value=1.0, factor=0.6" in repr(made["algorithm"])
    assert made["seed"] == 7


def test_the_users_ranges_replace_and_add() -> None:
    ranges = {"algorithm.beta": [0.2, 0.8], "feddecay/algorithm.lr": {"log": [0.1, 0.2]}, "batch_size": [8, 16]}
    found = tunables_of(
        "fedavg,feddecay:beta=0.5,feddecay", ranges, algorithm={**FILE["algorithm"], "name": "feddecay", "beta": 0.6}
    )
    assert fields_of(found["fedavg"]) == {"algorithm.lr", "batch_size"}
    assert fields_of(found["feddecay:beta=0.5"]) == {"algorithm.lr", "batch_size"}
    assert fields_of(found["feddecay"]) == {"algorithm.lr", "algorithm.beta", "batch_size"}
    assert next(d for d in found["feddecay"].dimensions if d.name == "algorithm.lr").samples == (0.1, 0.2)


@pytest.mark.parametrize("name", ["feddecay/algorithm.beta", "algorithm.beta"])
def test_a_setting_that_the_file_lacks_is_taken_from_its_range(name: str) -> None:
    """The file is FedAvg's: FedDecay's beta is nowhere but in the range."""
    found = tunables_of("feddecay,fedavg", {name: [0.4, 0.8]})
    assert fields_of(found["feddecay"]) == {"algorithm.lr", "algorithm.beta"}
    assert fields_of(found["fedavg"]) == {"algorithm.lr"}
    made = found["feddecay"].make({"algorithm.lr": 0.1, "algorithm.beta": 0.8}, 0)["algorithm"]
    assert "beta=0.8" in repr(made)


def test_a_setting_that_is_nowhere_is_asked_for_with_both_ways_to_give_it() -> None:
    with pytest.raises(ConfigError, match=r"--algorithms feddecay: .*beta.* Write feddecay:NAME=VALUE"):
        tunables_of("feddecay")


def test_adaptive_optimizers_have_smaller_rates() -> None:
    plain, adam = (
        tunables_of(None, algorithm={**FILE["algorithm"], **more})["fedavg"] for more in ({}, {"optimizer": "adam"})
    )
    assert adam.dimensions[0].samples[1] < plain.dimensions[0].samples[1]


def test_an_algorithm_of_ones_own_is_tuned_like_any_other() -> None:
    found = tunables_of("tests.own_algorithms:fednova,tests.own_algorithms:fednova:lr=0.2")
    own, fixed = found.values()
    assert fields_of(own) == {"algorithm.lr"} and fields_of(fixed) == set()
    assert repr(own.make({"algorithm.lr": 0.3}, 0)["algorithm"]).startswith("fednova(lr=0.3")


def test_every_algorithm_with_rates_has_default_ranges() -> None:
    without = {name for name, build in ALGORITHMS.items() if not default_ranges(name, build)}
    wrappers = {name for name, build in ALGORITHMS.items() if "algorithm" in inspect.signature(build).parameters}
    assert without == wrappers, "of a wrapper the rates of what it wraps are tuned"


WRONG: dict[str, tuple[str | None, dict[str, Any], str]] = {
    "a field of nobody": ("fedavg", {"algorithm.mu": [0.1]}, "a range must be for a field that some contestant has"),
    "another's name": ("fedavg", {"fedprox/algorithm.mu": [0.1]}, "Got 'fedprox/algorithm.mu'"),
    "the data": ("fedavg", {"data.seed": [0, 1]}, "data.seed is the same for all"),
    "the rounds": ("fedavg", {"rounds": [5, 6]}, "rounds is the same for all"),
    "a value that does not fit": (
        "fedavg",
        {"algorithm.steps": [0.5, 2]},
        "algorithm.steps must be an int >= 1 or a schedule. Got 0.5.",
    ),
    "nobody's half": ("fedavg", {"/algorithm.lr": [0.1]}, "a range must be named FIELD or CONTESTANT/FIELD"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_ranges_are_refused(case: str) -> None:
    text, ranges, message = WRONG[case]
    with pytest.raises(ConfigError) as error:
        tunables_of(text, ranges)
    assert message in str(error.value)


def test_points_are_spread_evenly_over_every_dimension() -> None:
    rate, other = log_range("lr", 0.01, 100.0), Dimension("other", (1, 2))
    points = spread_points([rate, log_range("head_lr", 1.0, 16.0), other], 4, seed=0)
    assert [point["lr"] for point in points] == pytest.approx([0.03162, 0.3162, 3.162, 31.62])
    assert sorted(point["head_lr"] for point in points) == pytest.approx([2**0.5, 2**1.5, 2**2.5, 2**3.5], rel=1e-3)
    assert sorted(point["other"] for point in points) == [1, 1, 2, 2]
    assert spread_points([rate], 4, seed=0) == spread_points([rate], 4, seed=9), "one dimension is a plain grid"
    assert spread_points([other], 8, seed=0) == [{"other": 1}, {"other": 2}], "no point is tried twice"
    assert spread_points([], 8, seed=0) == [{}]
