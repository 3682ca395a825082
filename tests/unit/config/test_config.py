"""The file alone decides the run: every algorithm runs from one, with the bits of the same run in Python."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import fedtempo as ft
from fedtempo.algorithms import ALGORITHMS
from fedtempo.config import own_code, parse, read, settings_of
from tests.slow import slow_but
from tests.unit.config.experiments import BACKBONE, HEAD, experiment


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_code, "_granted", own_code.Granted(modules=("tests",)))


# The settings of the algorithms that need others than a rate and steps.
SETTINGS: dict[str, dict[str, Any]] = {
    "fedsgd": {"lr": 0.1},
    "q_fedsgd": {"lr": 0.1},
    "afl": {"lr": 0.1, "weights_lr": 0.1},
    "server_decay": {"decay": 0.01, "around": BACKBONE},
    "adaptive_decay": {"rate": "tests.zoo:half", "decay": "tests.zoo:tenth", "around": BACKBONE},
    "feddecay": {"lr": 0.1, "beta": 0.5, "steps": 2},
    "stop_early": {"relative": 0.5, "around": BACKBONE},
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


ADAPTED = {"model": {"name": "tests.zoo:adapted", "inputs": 64, "outputs": 10}}
MODELS: dict[str, dict[str, Any]] = {"fedsa_lora": ADAPTED, "ffa_lora": ADAPTED, "fedex_lora": ADAPTED}
"""The models of the algorithms that need adapters."""


def made_by_file(name: str, folder: Path) -> dict[str, Any]:
    """The settings of a file with this algorithm."""
    wraps = "algorithm" in inspect.signature(ALGORITHMS[name]).parameters
    section = {"name": name, **SETTINGS.get(name, {"around": BACKBONE} if wraps else {"lr": 0.1, "steps": 2})}
    path = folder / "experiment.toml"
    path.write_text(tomli_w.dumps(experiment(algorithm=section, **MODELS.get(name, {}))))
    return settings_of(read(path))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_made_from_a_file(name: str, tmp_path: Path) -> None:
    assert made_by_file(name, tmp_path)["algorithm"].name == name


OFTEN = ["feddecay", "fednar", "scaffold", "pflego", "ditto", "fedem"]


@pytest.mark.parametrize("name", slow_but(OFTEN, ALGORITHMS, "every one is made from a file every time"))
def test_every_algorithm_runs_from_a_file(name: str, tmp_path: Path) -> None:
    result = ft.run(**made_by_file(name, tmp_path))
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


def test_the_cohort_may_be_a_schedule() -> None:
    settings = settings_of(parse(experiment(cohort={"schedule": "sequence", "values": [2, 3], "over": "round"})))
    history = ft.run(**settings).history
    assert [len(report.clients) for report in history] == [2, 3]


def test_full_batch_has_no_batch_size() -> None:
    assert settings_of(parse(experiment(full_batch=True)))["batch_size"] is None
