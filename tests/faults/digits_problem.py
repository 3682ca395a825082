"""The problem of the fault matrix: ten of twenty clients a round, sixty rounds, a quorum of three."""

from __future__ import annotations

from functools import cache
from typing import Any

import fedtempo as ft

ADMISSION = ft.Admission(max_norm=50.0, max_ratio=10.0)


@cache
def twenty_clients() -> ft.data.FederatedData:
    return ft.data.load("digits").split(ft.data.dirichlet(clients=20, alpha=5.0), seed=1, min_samples=3)


def settings(**changes: Any) -> dict[str, Any]:
    defaults = {
        "model": ft.models.mlp(64, [32], 10),
        "data": twenty_clients(),
        "algorithm": ft.algorithms.fedavg(lr=0.3, steps=10),
        "rounds": 60,
        "cohort": 10,
        "quorum": 3,
        "batch_size": 16,
        "seed": 0,
        "backend": "vectorised",
        "evaluation": ft.Evaluation(every=60, steps=0),
    }
    return {**defaults, **changes}


def train(**changes: Any) -> ft.Result:
    return ft.run(**settings(**changes))


@cache
def without_faults(steps: int = 10) -> ft.Result:
    return train(algorithm=ft.algorithms.fedavg(lr=0.3, steps=steps))


def accuracy(result: ft.Result) -> float:
    assert result.scores is not None
    return float(result.scores.existing_before.summary("accuracy")["mean"])
