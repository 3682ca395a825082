"""Experiment files: every example and algorithm goes in and out of TOML, and the file alone decides the run."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import fedtempo as ft
from fedtempo.algorithms import ALGORITHMS
from fedtempo.config import dump, fingerprint, make_algorithm, make_data, parse, read, settings_of
from fedtempo.config.schema import DataSection
from fedtempo.errors import ConfigError
from fedtempo.schedules import SCHEDULES, Now, from_config, per_round, per_step, to_config

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))

SMALL = tomllib.loads("""
rounds = 2
cohort = 2
batch_size = 8

[data]
name = "digits"
new_clients = 1
split = { name = "iid", clients = 6 }

[model]
name = "mlp"
inputs = 64
hidden = [4]
outputs = 10

[algorithm]
name = "fedavg"
lr = 0.1
steps = 2

[evaluation]
every = 2
users = 2
""")

BACKBONE = {"name": "fedavg", "lr": 0.1, "steps": 2}
HEAD = {"submodule": "head"}
SETTINGS: dict[str, dict[str, Any]] = {
    "fedsgd": {"lr": 0.1},
    "feddecay": {"lr": 0.1, "beta": 0.5, "steps": 2},
    "fednar": {"weight_decay": 0.1, "max_norm": 1.0, "around": BACKBONE},
    "clip_then_decay": {"weight_decay": 0.1, "max_norm": 1.0, "around": BACKBONE},
    "pflego": {"head_lr": 0.1, "server_lr": 0.1, "steps": 3, "head": HEAD},
    "fedper": {"lr": 0.1, "steps": 2, "head": {"matching": "head.*"}},
    "fedrep": {"lr": 0.1, "head_steps": 2, "body_steps": 1, "head": HEAD},
    "fedrecon": {"lr": 0.1, "head_lr": 0.1, "head_steps": 2},
    "fedrecon_stateful": {"head_lr": 0.1, "server_lr": 0.1, "head_steps": 2},
    "pfedme": {"lr": 0.01, "inner_steps": 2, "local_rounds": 2},
    "fedem": {"lr": 0.1, "steps": 2, "components": 2},
}
"""The settings of the algorithms that need others than a rate and steps."""


def experiment(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(SMALL), **changes}


def nested(values: dict[str, Any], *path: str) -> Any:
    for key in path:
        values = values[key]
    return values


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_survives_the_round_trip(path: Path) -> None:
    first = read(path)
    again = parse(tomllib.loads(dump(first)))
    assert again == first
    assert dump(again) == dump(first)
    assert fingerprint(again) == fingerprint(first)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_runs_from_a_file(name: str, tmp_path: Path) -> None:
    section = {"name": name, **SETTINGS.get(name, {"lr": 0.1, "steps": 2})}
    path = tmp_path / "experiment.toml"
    path.write_text(tomli_w.dumps(experiment(algorithm=section)))
    result = ft.run(**settings_of(read(path)))
    assert len(result.history) == 2
    assert result.experiment.federation.algorithm.name == name


def test_a_file_and_python_give_the_same_bits() -> None:
    from_file = ft.run(**settings_of(parse(experiment())))
    in_python = ft.run(
        model=ft.models.mlp(64, [4], 10),
        data=ft.data.load("digits").split(ft.data.iid(6), new_clients=1),
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=2),
        rounds=2,
        cohort=2,
        batch_size=8,
        evaluation=ft.Evaluation(every=2, users=2),
    )
    assert from_file.digest() == in_python.digest()


SCHEDULE_SETTINGS: dict[str, dict[str, Any]] = {
    "constant": {"value": 0.5},
    "per_round": {"value": 0.5, "factor": 0.9},
    "per_step": {"value": 0.5, "factor": 0.9, "per": "epoch"},
    "linear_in_round": {"value": 0.5, "beta": 0.5},
    "inverse_time": {"c": 1.0, "d": 2},
    "cosine": {"value": 0.5, "rounds": 5, "final": 0.1},
    "piecewise": {"value": 0.5, "steps": {"1": 0.1}},
    "sequence": {"values": [0.5, 0.25], "over": "round"},
    "by_loss": {"value": 0.5},
    "on_plateau": {"value": 0.5},
    "inverse_participation": {},
    "data_share": {},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_a_table(name: str) -> None:
    table = {"schedule": name, **SCHEDULE_SETTINGS[name]}
    algorithm = make_algorithm({"name": "fedavg", "lr": table, "steps": 2})
    rate = algorithm.phases[0].lr
    for now in (Now(), Now(round=3, step=2, clients=4, cohort=2.0, samples=3, total_samples=9)):
        assert rate.at(now) == from_config(table).at(now)


def test_a_product_of_schedules_goes_out_and_in() -> None:
    schedule = per_round(0.1, 0.9) * per_step(1.0, 0.5)
    algorithm = make_algorithm({"name": "fedavg", "lr": to_config(schedule), "steps": 2})
    assert algorithm.phases[0].lr == schedule


def test_the_cohort_may_be_a_schedule() -> None:
    settings = settings_of(parse(experiment(cohort={"schedule": "sequence", "values": [2, 3], "over": "round"})))
    history = ft.run(**settings).history
    assert [len(report.clients) for report in history] == [2, 3]


def test_wrappers_nest() -> None:
    inner = {"name": "clip_then_decay", "weight_decay": 0.1, "max_norm": 2.0, "around": BACKBONE}
    algorithm = make_algorithm({"name": "fednar", "weight_decay": 0.2, "max_norm": 1.0, "around": inner})
    assert algorithm.settings["algorithm"].settings["algorithm"].name == "fedavg"


@pytest.mark.parametrize(("table", "names"), [(HEAD, {"head.weight", "head.bias"}), ({"matching": "*.bias"}, None)])
def test_a_selector_is_a_table(table: dict[str, str], names: set[str] | None) -> None:
    algorithm = make_algorithm({"name": "fedper", "lr": 0.1, "steps": 1, "head": table})
    chosen = algorithm.personal.names(ft.models.mlp(6, [5], 4))
    assert chosen == (names or {"head.bias", "body.1.bias"})


OVERRIDES = [
    ("algorithm.lr=0.4", ("algorithm", "lr"), 0.4),
    ("rounds = 7", ("rounds",), 7),
    ("backend=serial", ("backend",), "serial"),
    ('backend="serial"', ("backend",), "serial"),
    ("model.hidden=[3, 4]", ("model", "hidden"), [3, 4]),
    ("evaluation.trains=head", ("evaluation", "trains"), "head"),
    ('algorithm.lr={ schedule = "constant", value = 0.5 }', ("algorithm", "lr", "value"), 0.5),
    ("data.split.clients=9", ("data", "split", "clients"), 9),
    ("full_batch=true", ("full_batch",), True),
]


@pytest.mark.parametrize(("override", "path", "value"), OVERRIDES)
def test_overrides(override: str, path: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(tomli_w.dumps(SMALL))
    assert nested(read(file, [override]).model_dump(), *path) == value


def test_the_last_override_wins(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(tomli_w.dumps(SMALL))
    assert read(file, ["rounds=3", "rounds=4"]).rounds == 4


def test_the_fingerprint_knows_values_and_not_their_order() -> None:
    plain = fingerprint(parse(experiment()))
    shuffled = dict(reversed(list(experiment().items())))
    assert fingerprint(parse(shuffled)) == plain
    assert fingerprint(parse(experiment(seed=0))) == plain  # the default, written down
    assert fingerprint(parse(experiment(seed=1))) != plain


def leaves(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        elif isinstance(value, int):
            yield (*path, key)


@pytest.mark.parametrize("path", list(leaves(SMALL)), ids=".".join)
def test_every_number_is_part_of_the_fingerprint(path: tuple[str, ...]) -> None:
    values = experiment()
    nested(values, *path[:-1])[path[-1]] += 1
    assert fingerprint(parse(values)) != fingerprint(parse(experiment()))


def test_full_batch_has_no_batch_size() -> None:
    assert settings_of(parse(experiment(full_batch=True)))["batch_size"] is None


def test_seed_reaches_a_generated_data_set() -> None:
    """`[data] seed` goes to the generator as well as to the split."""
    one, two, again = (
        make_data(DataSection.model_validate({"name": "synthetic", "clients": 3, "seed": seed})) for seed in (1, 2, 1)
    )
    assert one.columns["x"].shape != two.columns["x"].shape or (one.columns["x"] != two.columns["x"]).any()
    assert (one.columns["x"] == again.columns["x"]).all()


def test_optimizers_and_selectors_in_files() -> None:
    section = {
        "name": "fednar",
        "weight_decay": 0.1,
        "max_norm": 1.0,
        "around": {
            "name": "fedavg",
            "lr": 0.1,
            "steps": 2,
            "accumulate": 4,
            "optimizer": {
                "name": "adamw",
                "weight_decay": {"schedule": "per_round", "value": 0.1, "factor": 0.5},
                "state": "keep",
            },
            "trains": {
                "any": [{"submodule": "head"}, {"all": [{"matching": ["*.bias"]}, {"not": {"submodule": "x.*"}}]}]
            },
        },
    }
    (phase,) = make_algorithm(section).phases
    assert repr(phase.optimizer) == "adamw(weight_decay=per_round(value=0.1, factor=0.5), state='keep')"
    assert phase.accumulate == 4
    model = ft.models.mlp(6, [5], 4)
    assert phase.trains.names(model) == {"head.weight", "head.bias", "body.1.bias"}
    assert (
        make_algorithm({"name": "fedavg", "lr": 0.1, "steps": 1, "optimizer": "adam"}).phases[0].optimizer.name
        == "adam"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"optimizer": "adma"}, "algorithm.optimizer.name 'adma' is not known. Did you mean 'adam'"),
        ({"optimizer": {"name": "adam", "beta": 1}}, "algorithm.optimizer 'adam': setting 'beta' is not known"),
        ({"optimizer": {"name": "adam", "state": "lost"}}, "algorithm.optimizer.state must be 'reset' or 'keep'"),
        ({"optimizer": 3}, "algorithm.optimizer must be { name"),
        ({"trains": {"any": []}}, "algorithm.trains.any must be a list of selectors"),
        ({"trains": {"not": "head"}}, "algorithm.trains.not must be"),
        ({"trains": {"matching": [3]}}, "algorithm.trains.matching must be a string or a list"),
        ({"accumulate": 0}, "algorithm.accumulate must be an int >= 1"),
    ],
)
def test_wrong_clients_settings_in_files_are_named_by_their_place(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        make_algorithm({"name": "fedavg", "lr": 0.1, "steps": 1, **given})
