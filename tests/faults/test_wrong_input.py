"""Wrong input in Python: a one-line error of the library's own, before the first round is trained."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.schedules import per_round, sequence
from fedtempo.server.cohort import as_cohort, fixed
from fedtempo.support.accelerator import device_of
from fedtempo.training.checks.settings import check_cohort, check_evaluation, check_protocol
from fedtempo.training.prepare import prepare

NAN, INF = math.nan, math.inf


def rows(count: int = 8, width: int = 6, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    return rng.standard_normal((count, width)), rng.integers(0, classes, count)


def federated(**settings: Any) -> ft.data.FederatedData:
    clients = [rows(count) for count in (8, 9, 10, 11, 12, 13)]
    return ft.data.FederatedData.from_clients(clients, test=0.25, **{"new_clients": 1, **settings})


DATA = federated()
TRAINING, NEW = DATA.clients.tolist(), DATA.held_out.tolist()
BASE: dict[str, Any] = {
    "model": lambda: ft.models.mlp(6, [5], 4),
    "data": DATA,
    "algorithm": fl.feddecay(lr=0.1, beta=0.5, steps=2),
    "rounds": 2,
    "cohort": 2,
    "batch_size": 4,
}


def prepared(**changes: Any) -> Any:
    return prepare(**{**BASE, **changes})


def refused(error: type[ft.FedTempoError], expected: str, make: Callable[[], dict[str, Any]]) -> None:
    """`ft.train` refuses before it returns a generator, in one line."""
    with pytest.raises(error) as caught:
        ft.train(**{**BASE, **make()})
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


class Odd(nn.Module):
    """A linear layer whose output goes through anything."""

    def __init__(self, last: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.last = last

    def forward(self, x: Tensor) -> Any:
        return self.last(self.linear(x))


COUNTS = [True, -1, 0, 0.5, 1.5, NAN, INF, "5", [1], {}]


@pytest.mark.parametrize("value", [*COUNTS, None, 2.0, 2**70])
def test_rounds(value: Any) -> None:
    refused(ft.ConfigError, "rounds must be an int in [1, ", lambda: {"rounds": value})


@pytest.mark.parametrize("value", [True, -1, 0, 0.0, -0.5, 1.5, NAN, INF, "2", [1], {}, None])
def test_cohort(value: Any) -> None:
    refused(ft.ConfigError, "cohort must be", lambda: {"cohort": value})


def test_cohort_larger_than_the_clients() -> None:
    refused(ft.ConfigError, "cohort must be an int in [1, 5]", lambda: {"cohort": 6})


@pytest.mark.parametrize("value", [*COUNTS, 2**70])
def test_batch_size(value: Any) -> None:
    refused(ft.ConfigError, "batch_size must be", lambda: {"batch_size": value})


@pytest.mark.parametrize("value", [True, -1, 0.5, 2.0, NAN, "5", [1], None])
def test_seed(value: Any) -> None:
    refused(ft.ConfigError, "seed must be an int >= 0", lambda: {"seed": value})


def test_a_huge_seed_is_a_seed() -> None:
    assert prepared(seed=2**70).federation.problem.seed == 2**70


CONFIG: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "a data table": ("data must be", lambda: {"data": ft.data.load("digits")}),
    "an algorithm that was not called": ("algorithm must be", lambda: {"algorithm": fl.fedavg}),
    "unknown batches": ("batches", lambda: {"batches": "epoch"}),
    "unknown loss": ("Did you mean 'regression'?", lambda: {"loss": "regresion"}),
    "unknown backend": ("Did you mean 'vectorised'?", lambda: {"backend": "vectorized"}),
    "an integer dtype": ("dtype must be", lambda: {"dtype": torch.int64}),
    "a dtype by name": ("dtype must be", lambda: {"dtype": "float32"}),
    "a dtype too small to train in": ("dtype must be", lambda: {"dtype": torch.float8_e4m3fn}),
    "no block": ("block must be", lambda: {"block": 0}),
    "no workers": ("workers must be", lambda: {"workers": 0}),
    "unknown init": ("init must be", lambda: {"init": "modle"}),
    "no cohorts": ("cohorts must be", lambda: {"cohorts": []}),
    "an empty cohort": ("cohorts must be", lambda: {"cohorts": [[]]}),
    "an algorithm without phases": ("algorithm.phases must be", lambda: {"algorithm": ft.Algorithm(())}),
    "a head that is everything": (
        "must leave something to share",
        lambda: {"algorithm": fl.fedper(lr=0.1, steps=1, head=ft.params.everything)},
    ),
    "a head that is nothing": (
        "must match some tensors",
        lambda: {"algorithm": fl.fedper(lr=0.1, steps=1, head=ft.params.matching("x*"))},
    ),
    "a model without a head": (
        "must match some tensors",
        lambda: {"algorithm": fl.fedper(lr=0.1, steps=1), "model": nn.Sequential(nn.Linear(6, 4))},
    ),
    "more steps than can be planned": ("steps", lambda: {"algorithm": fl.fedavg(lr=0.1, steps=2**40)}),
    "a rate beyond the dtype": ("lr must be at most", lambda: {"algorithm": fl.fedavg(lr=1e300, steps=1)}),
    "a schedule that overflows": (
        "schedule per_round(value=1.0, factor=1e+200) must be finite. Got inf at round 2",
        lambda: {"algorithm": fl.fedavg(lr=per_round(1.0, 1e200), steps=1), "rounds": 5, "dtype": torch.float64},
    ),
    "steps that explode": (
        "steps in round 1 must be at most 1000000",
        lambda: {"algorithm": fl.fedavg(lr=0.1, steps=per_round(5, 1e200)), "rounds": 5},
    ),
    "a schedule that fails": ("ZeroDivisionError", lambda: {"algorithm": fl.fedavg(lr=lambda now: 1 / 0, steps=1)}),
    "a schedule of words": ("lr must be a number", lambda: {"algorithm": fl.fedavg(lr=lambda now: "a", steps=1)}),
    "a schedule of nothing": ("lr must be a number", lambda: {"algorithm": fl.fedavg(lr=lambda now: None, steps=1)}),
    "personal tensors of a client that has none": (
        "init_clients",
        lambda: {"init_clients": {TRAINING[0]: {"head.bias": torch.zeros(4)}}},
    ),
}


@pytest.mark.parametrize("case", CONFIG)
def test_wrong_settings(case: str) -> None:
    refused(ft.ConfigError, *CONFIG[case])


MODELS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "too few outputs": ("labels of shape (4,) run from 0 to 3", lambda: {"model": ft.models.mlp(6, [5], 3)}),
    "the wrong width": ("does not run on a batch of shapes", lambda: {"model": ft.models.mlp(7, [5], 4)}),
    "one number a row": ("one entry per class", lambda: {"model": Odd(lambda y: y[:, 0])}),
    "one number": ("one entry per row", lambda: {"model": Odd(lambda y: y.sum())}),
    "too few rows": ("one entry per row", lambda: {"model": Odd(lambda y: y[:2])}),
    "a dimension too many": ("one entry per class", lambda: {"model": Odd(lambda y: y[:, :, None])}),
    "two tensors": ("must return one tensor", lambda: {"model": Odd(lambda y: (y, y))}),
    "classes instead of scores": ("must be floating-point", lambda: {"model": Odd(lambda y: y.argmax(-1))}),
    "NaN": ("must be finite", lambda: {"model": Odd(lambda y: y * NAN)}),
    "a KeyError": ("does not run", lambda: {"model": Odd(lambda y: {}["a"])}),
    "an AttributeError": ("does not run", lambda: {"model": Odd(lambda y: y.nothing)}),
    "nothing to train": ("must have parameters", lambda: {"model": nn.Flatten()}),
    "words for classes": ("one entry per class", lambda: {"loss": "language"}),
    "a loss for each output": (
        "with one number, or one per row",
        lambda: {"loss": lambda outputs, targets: outputs},
    ),
    "a loss that is NaN": ("must be finite", lambda: {"loss": lambda outputs, targets: outputs.sum(-1) * NAN}),
    "a loss without a gradient": (
        "a function of the model's weights",
        lambda: {"loss": lambda outputs, targets: torch.ones(len(targets))},
    ),
    "a tensor nobody has": ("init must have the model's tensor names", lambda: {"init": {"tail": torch.zeros(2)}}),
    "a tensor that would broadcast": ("init['head.weight']", lambda: {"init": {"head.weight": torch.zeros(1)}}),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_model_or_loss_that_does_not_fit(case: str) -> None:
    refused(ft.ModelError, *MODELS[case])


def test_a_model_with_nan_weights() -> None:
    model = ft.models.mlp(6, [5], 4)
    nn.init.constant_(model.head.bias, NAN)  # type: ignore[arg-type]
    refused(ft.ModelError, "first weights must be finite", lambda: {"model": model, "init": "model"})


def of(*clients: Any, **settings: Any) -> ft.data.FederatedData:
    return ft.data.FederatedData.from_clients(list(clients), **settings)


DATA_CASES: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "NaN": ("column 'x' must be finite", lambda: {"data": of((np.full((3, 6), NAN), np.zeros(3, int)))}),
    "infinity in a test part": (
        "column 'x' must be finite",
        lambda: {"data": of(rows(), test=[(np.full((3, 6), INF), np.zeros(3, int))])},
    ),
    "an empty client": (
        "client 1 has no training data",
        lambda: {"data": of(rows(), (np.zeros((0, 6)), np.zeros(0, int)))},
    ),
    "no client": ("at least one client", lambda: {"data": of()}),
    "columns of two lengths": ("equal lengths", lambda: {"data": of((np.zeros((3, 6)), np.zeros(4, int)))}),
    "too few sizes of heads": ("outputs must have one entry per client", lambda: {"data": federated(outputs=[4])}),
    "heads too small for the labels": ("above its highest label", lambda: {"data": federated(outputs=[1] * 6)}),
    "heads of negative size": ("above its highest label", lambda: {"data": federated(outputs=[-1] * 6)}),
    "an unknown client": ("init_clients must name clients", lambda: {"init_clients": {99: {}}}),
}


@pytest.mark.parametrize("case", DATA_CASES)
def test_data_that_cannot_be_trained_on(case: str) -> None:
    expected, make = DATA_CASES[case]
    refused(ft.DataError, expected, lambda: {"cohort": 1.0, **make()})


PERSONAL: dict[str, tuple[str, dict[str, Any]]] = {
    "a shared tensor": ("init_clients", {"body.1.weight": torch.zeros(5, 6)}),
    "another shape": ("must be of shape (4,)", {"head.bias": torch.zeros(9)}),
    "NaN": ("must be finite", {"head.bias": torch.full((4,), NAN)}),
    "a list": ("must be a tensor", {"head.bias": [1.0, 2.0, 3.0, 4.0]}),
}


@pytest.mark.parametrize("case", PERSONAL)
def test_personal_tensors_that_are_not_a_clients_own(case: str) -> None:
    expected, given = PERSONAL[case]
    algorithm = fl.fedper(lr=0.1, steps=1)
    refused(ft.ConfigError, expected, lambda: {"algorithm": algorithm, "init_clients": {TRAINING[0]: given}})


def test_personal_tensors_that_are_a_clients_own() -> None:
    given = {TRAINING[0]: {"head.bias": torch.ones(4), "head.weight": torch.ones(4, 5)}}
    federation = prepared(algorithm=fl.fedper(lr=0.1, steps=1), init_clients=given).federation
    first = federation.first_personal(TRAINING[0], {})
    assert all(bool((first[name] == 1).all()) for name in ("head.bias", "head.weight"))


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "", "meta", None, 5, True, NAN])
def test_a_device_that_is_not_here(device: Any) -> None:
    with pytest.raises(ft.ConfigError, match="device must be"):
        device_of(device)


def test_the_devices_that_are_here() -> None:
    device_of("cpu")
    device_of(torch.device("cpu"))


@pytest.mark.parametrize("cohorts", [[NEW], [[99]], [[-1]], [TRAINING[:1] * 2], [TRAINING[:1], NEW]])
def test_cohorts_name_training_clients_once(cohorts: list[list[int]]) -> None:
    with pytest.raises(ft.ConfigError, match="cohorts must be"):
        check_cohort(fixed(cohorts), prepared().federation, 2)


def test_a_cohort_that_outgrows_the_clients() -> None:
    federation = prepared().federation
    with pytest.raises(ft.ConfigError, match="cohort must be"):
        check_cohort(as_cohort(per_round(2, 10.0), None), federation, 3)
    check_cohort(as_cohort(sequence([2, 3], over="round"), None), federation, 3)


EVALUATIONS: dict[str, Callable[[], Any]] = {
    "a dict": lambda: {"every": 1},
    "true": lambda: True,
    "steps and epochs": lambda: ft.Evaluation(steps=1, epochs=1),
    "negative steps": lambda: ft.Evaluation(steps=-1),
    "half a step": lambda: ft.Evaluation(steps=0.5),
    "steps in words": lambda: ft.Evaluation(steps="ten"),  # type: ignore[arg-type]
    "a negative rate": lambda: ft.Evaluation(lr=-1.0),
    "a rate that is NaN": lambda: ft.Evaluation(lr=NAN),
    "a rate in words": lambda: ft.Evaluation(lr="fast"),  # type: ignore[arg-type]
    "every 0 rounds": lambda: ft.Evaluation(every=0),
    "no users": lambda: ft.Evaluation(users=0),
    "an unknown part": lambda: ft.Evaluation(trains="tail"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", EVALUATIONS)
def test_evaluations_that_cannot_be_run(case: str) -> None:
    federation = prepared().federation
    with pytest.raises(ft.ConfigError, match="evaluation"):
        protocol = EVALUATIONS[case]()
        check_protocol(protocol)
        check_evaluation(protocol, federation)


def test_tuning_a_head_that_is_not_there() -> None:
    federation = prepared(model=nn.Sequential(nn.Linear(6, 4))).federation
    with pytest.raises(ft.ConfigError, match="evaluation: trains must be"):
        check_evaluation(ft.Evaluation(trains="head"), federation)
    check_evaluation(ft.Evaluation(), federation)
    check_evaluation(None, federation)
