"""An experiment: what decides its numbers, and how it is described."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.backends import Calibration
from fedtempo.training.experiment import Experiment
from fedtempo.training.prepare import prepare
from tests import zoo


def experiment(**settings: Any) -> Experiment:
    usual = {"algorithm": a.fedavg(lr=0.1, steps=2), "rounds": 3, "cohort": 4, "backend": "serial"}
    return prepare(**{"model": zoo.model("mlp"), "data": zoo.data("mlp"), **usual, **settings})


TRAINED = int(zoo.data("mlp").clients[0])
DECIDES: dict[str, tuple[str, dict[str, Any]]] = {
    "seed": ("seed", {"seed": 1}),
    "a rate": ("algorithm", {"algorithm": a.fedavg(lr=0.2, steps=2)}),
    "weights to start from": ("model", {"init": {"head.bias": torch.ones(4)}}),
    "loss": ("loss", {"loss": lambda outputs, targets: outputs.sum(-1)}),
    "batch size": ("batching", {"batch_size": 5}),
    "drawing with replacement": ("batching", {"batches": "replace"}),
    "type": ("dtype", {"dtype": torch.float64}),
    "cohort": ("cohort", {"cohort": 5}),
    "cohorts": ("cohort", {"cohorts": [[TRAINED]]}),
    "rounds": ("rounds", {"rounds": 4}),
    "code": ("backend", {"backend": "vectorised"}),
    "scores": ("evaluation", {"evaluation": None}),
    "quorum": ("quorum", {"quorum": 2}),
    "over-selection": ("quorum", {"over_selection": 0.5}),
    "faults": ("policy", {"faults": ft.Faults(drop=0.1)}),
    "admission": ("policy", {"admission": ft.Admission(max_norm=1.0)}),
    "aggregator": ("policy", {"aggregator": ft.robust.median()}),
}


@pytest.mark.parametrize("name", DECIDES)
def test_whatever_decides_the_numbers_is_part_of_the_identity(name: str) -> None:
    field, change = DECIDES[name]
    plain, changed = experiment().identity(), experiment(**change).identity()
    assert {key for key in plain if plain[key] != changed[key]} >= {field}


@pytest.mark.parametrize("change", [{}, {"workers": 2}, {"block": 2}, {"deadline": 9.0}, {"backend": "processes"}])
def test_where_clients_run_is_not(change: dict[str, Any]) -> None:
    plain, changed = experiment().identity(), experiment(**change).identity()
    assert plain == changed


def test_the_block_counts_only_where_clients_are_rounded_together() -> None:
    assert experiment(backend="vectorised", block=2).identity()["block"] == "2"
    assert experiment(backend="serial", block=2).identity()["block"] == "any"


def test_how_it_ran_is_said() -> None:
    measured = Calibration(0.0021, 6, 2)
    assert experiment().ran_as() == "serial code in this process, 64 clients to a block"
    assert experiment(workers=2).ran_as() == "serial code in 2 processes, 64 clients to a block"
    assert experiment(block=1).ran_as(measured) == (
        "serial code in 2 processes, 1 client to a block (calibrated: 2.1 ms a block, 6 a round)"
    )
