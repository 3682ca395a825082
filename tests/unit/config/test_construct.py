"""From tables of a file to algorithms, schedules, selectors and data."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.config import make_algorithm, make_data, own_code, parse, settings_of
from fedtempo.config.schema import DataSection
from fedtempo.schedules import SCHEDULES, Now, from_config, per_round, per_step, to_config
from tests import zoo
from tests.unit.config.experiments import BACKBONE, HEAD, experiment


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        own_code,
        "_granted",
        own_code.Granted(
            modules=(
                "tests",
                "torch",
            )
        ),
    )


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
    "qsr": {"lr": 0.1, "alpha": 0.4},
    "finish_by": {"seconds": 10.0, "most": 5},
    "over_time": {"value": 0.5, "factor": 0.5, "seconds": 60.0},
    "by_own_loss": {"value": 0.5, "power": 0.5},
    "warmup": {"value": 0.5, "rounds": 4},
    "wsd": {"peak": 0.5, "rounds": 9, "warmup": 2, "decay": 3, "final": 0.1, "shape": "sqrt", "over": "step"},
    "then": {"first": 0.5, "until": 2, "after": {"schedule": "per_round", "value": 0.1, "factor": 0.9}},
    "decaying_k": {"k0": 10, "rate": 0.9},
    "decaying_lr": {"value": 0.1, "rate": 0.9},
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


def test_functions_of_ones_own_stand_by_name() -> None:
    """An algorithm that takes functions takes their names from a file; one that is not there is named."""
    table = {"name": "adaptive_decay", "rate": "tests.zoo:half", "decay": "tests.zoo:tenth", "around": BACKBONE}
    assert make_algorithm(table).settings["rate"] is zoo.half
    weighted = make_algorithm({"name": "loss_weighted", "weigh": "torch:log1p", "around": BACKBONE})
    assert weighted.settings["weigh"] is torch.log1p
    with pytest.raises(ft.ConfigError, match=re.escape("algorithm.rate")):
        make_algorithm({**table, "rate": "tests.zoo:third"})


def test_wrappers_nest() -> None:
    inner = {"name": "clip_then_decay", "weight_decay": 0.1, "max_norm": 2.0, "around": BACKBONE}
    algorithm = make_algorithm({"name": "fednar", "weight_decay": 0.2, "max_norm": 1.0, "around": inner})
    assert algorithm.settings["algorithm"].settings["algorithm"].name == "fedavg"


SERVERS: dict[str, tuple[Any, ft.Transform | ft.optimizers.Optimizer]] = {
    "a client's, by its name": ("adam", ft.optimizers.adam()),
    "a client's, by a table": (
        {"name": "sgd", "momentum": 0.9, "nesterov": True},
        ft.optimizers.sgd(0.9, nesterov=True),
    ),
    "momentum": ({"name": "momentum", "decay": 0.5}, ft.transforms.momentum(0.5)),
    "Adam of Reddi et al.": ({"name": "scale_by_adam", "initial": 0.1}, ft.transforms.scale_by_adam(initial=0.1)),
    "Yogi": ("scale_by_yogi", ft.transforms.scale_by_yogi()),
    "Adagrad": ("scale_by_adagrad", ft.transforms.scale_by_adagrad()),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_optimizer_goes_around_any_algorithm_of_a_file(name: str) -> None:
    table, optimizer = SERVERS[name]
    inner = {"name": "scaffold", "lr": 0.1, "steps": 2}
    section = {"name": "with_server", "optimizer": table, "server_lr": 0.05, "around": inner}
    settings = settings_of(parse(experiment(algorithm=section)))
    in_python = fl.with_server(fl.scaffold(lr=0.1, steps=2), optimizer, 0.05)
    assert repr(settings["algorithm"]) == repr(in_python)
    from_file = ft.run(**settings)
    assert from_file.digest() == ft.run(**{**settings, "algorithm": in_python}).digest()
    assert from_file.digest() != ft.run(**{**settings, "algorithm": fl.scaffold(lr=0.1, steps=2)}).digest()


def test_a_personal_head_goes_under_any_algorithm_of_a_file() -> None:
    table = {"name": "with_head", "head": HEAD, "around": {"name": "fedexp", "lr": 0.1, "steps": 2}}
    algorithm = make_algorithm(table)
    assert algorithm.personal.names(ft.models.mlp(6, [5], 4)) == {"head.weight", "head.bias"}
    assert algorithm.settings["algorithm"].name == "fedexp"
    assert len(ft.run(**settings_of(parse(experiment(algorithm=table)))).history) == 2


def test_a_server_optimizer_of_a_file_that_is_not_known_is_named() -> None:
    table = {"name": "with_server", "optimizer": "scale_by_adm", "around": BACKBONE}
    with pytest.raises(ft.ConfigError, match=r"algorithm\.optimizer.*Did you mean 'scale_by_adam'"):
        make_algorithm(table)
    with pytest.raises(ft.ConfigError, match=r"algorithm\.around must be the table of the algorithm to wrap"):
        make_algorithm({"name": "with_server", "optimizer": "adam"})
    with pytest.raises(ft.ConfigError, match=r"algorithm\.optimizer"):
        make_algorithm({"name": "fedavg", "lr": 0.1, "steps": 1, "optimizer": "scale_by_adam"})


@pytest.mark.parametrize(("table", "names"), [(HEAD, {"head.weight", "head.bias"}), ({"matching": "*.bias"}, None)])
def test_a_selector_is_a_table(table: dict[str, str], names: set[str] | None) -> None:
    algorithm = make_algorithm({"name": "fedper", "lr": 0.1, "steps": 1, "head": table})
    chosen = algorithm.personal.names(ft.models.mlp(6, [5], 4))
    assert chosen == (names or {"head.bias", "body.1.bias"})


def test_seed_reaches_a_generated_data_set() -> None:
    """`[data] seed` goes to the generator as well as to the split."""
    one, two, again = (
        make_data(DataSection.model_validate({"name": "synthetic", "clients": 3, "seed": seed})) for seed in (1, 2, 1)
    )
    assert one.columns["x"].shape != two.columns["x"].shape or (one.columns["x"] != two.columns["x"]).any()
    assert (one.columns["x"] == again.columns["x"]).all()


def test_compressors_in_files() -> None:
    """By name, by table, or as a list, which is a chain; on wrappers too."""
    backbone = {"name": "feddecay", "lr": 0.1, "beta": 0.5, "steps": 2}
    top = {"name": "top_k", "fraction": 0.01, "feedback": "ef21"}
    made = make_algorithm({"name": "fednar", "around": backbone, "weight_decay": 0.1, "max_norm": 1.0, "compress": top})
    assert repr(made.uploads.compress) == "top_k(fraction=0.01, feedback='ef21')"
    chain = make_algorithm({**backbone, "compress": [top, "sign"], "compress_down": {"name": "rounding", "bits": 8}})
    assert repr(chain.uploads.compress) == "chain(of=[top_k(fraction=0.01, feedback='ef21'), sign()])"
    assert repr(chain.compress_down) == "rounding(bits=8)"


def test_optimizers_and_selectors_in_files() -> None:
    section = {
        "name": "fednar",
        "weight_decay": 0.0,
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
        ({"compress": "top_j"}, "algorithm.compress.name 'top_j' is not known. Did you mean 'top_k'"),
        ({"compress": "top_k"}, "algorithm.compress.fraction must be given for 'top_k'"),
        (
            {"compress": {"name": "qsgd", "levels": 0}},
            "algorithm.compress.levels must be an int in [1, 32768]. Got 0",
        ),
        ({"compress": ["sign", "sign"]}, "algorithm.compress.of must be compressors that leave numbers"),
        ({"compress_down": 8}, "algorithm.compress_down must be { name"),
        ({"trains": {"any": []}}, "algorithm.trains.any must be a list of selectors"),
        ({"trains": {"not": "head"}}, "algorithm.trains.not must be"),
        ({"trains": {"matching": [3]}}, "algorithm.trains.matching must be a string or a list"),
        ({"accumulate": 0}, "algorithm.accumulate must be an int >= 1"),
    ],
)
def test_wrong_clients_settings_in_files_are_named_by_their_place(given: dict[str, object], words: str) -> None:
    with pytest.raises(ft.ConfigError, match=re.escape(words)):
        make_algorithm({"name": "fedavg", "lr": 0.1, "steps": 1, **given})
