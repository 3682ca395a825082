"""q-FedAvg and q-FedSGD where their formula divides by nothing: a rate of 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import fedtempo as ft
from tests import zoo

WARM_UP = ft.schedules.sequence([0.0, 0.1], over="round")
METHODS: dict[str, Callable[[], ft.Algorithm]] = {
    "q_fedavg": lambda: ft.algorithms.q_fedavg(lr=WARM_UP, steps=2),
    "q = 0": lambda: ft.algorithms.q_fedavg(lr=WARM_UP, steps=2, q=0.0),
    "q = 2": lambda: ft.algorithms.q_fedavg(lr=WARM_UP, steps=2, q=2.0),
    "static step": lambda: ft.algorithms.q_fedavg(lr=WARM_UP, steps=2, static_step=True),
    "q_fedsgd": lambda: ft.algorithms.q_fedsgd(lr=WARM_UP),
}


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("name", METHODS)
def test_a_rate_of_zero_moves_nothing(name: str, backend: str) -> None:
    fixed = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "evaluation": None, "backend": backend}
    rounds = ft.train(**fixed, algorithm=METHODS[name](), rounds=2, cohort=3, init="model")
    first, second = (next(rounds).params for _ in range(2))
    start = dict(zoo.model("mlp").named_parameters())
    assert all(torch.equal(first[name], value) for name, value in start.items())
    assert all(not torch.equal(second[name], value) for name, value in start.items())
