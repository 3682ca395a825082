"""FedTempo on a workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import fedtempo as ft
from benchmarks.workloads import Workload

MANY = 1_000_000


def federated(workload: Workload, inputs: np.ndarray, labels: np.ndarray) -> ft.data.FederatedData:
    """The workload's clients over its columns: nothing is copied."""
    starts = np.arange(workload.clients) * workload.samples
    ends = starts + workload.samples
    return ft.data.FederatedData({"x": inputs, "y": labels}, np.stack([starts, ends, ends, ends], axis=1))


def rounds(
    workload: Workload, data: ft.data.FederatedData, algorithm: ft.Algorithm | None = None, **settings: Any
) -> Iterator[ft.RoundReport]:
    """Rounds without end; plain FedAvg on `backend="auto"` unless told otherwise."""
    chosen = algorithm or ft.algorithms.fedavg(lr=workload.lr, steps=workload.steps)
    return ft.train(
        model=settings.pop("model", None) or workload.model(),
        data=data,
        algorithm=chosen,
        rounds=settings.pop("rounds", MANY),
        cohort=workload.cohort,
        batch_size=workload.batch,
        evaluation=None,
        progress=False,
        **settings,
    )


def rivals(workload: Workload) -> dict[str, ft.Algorithm]:
    """The algorithms whose step is to cost what FedAvg's costs, or twice that where it takes two gradients."""
    a, lr, steps = ft.algorithms, workload.lr, workload.steps
    return {
        "FedAvg": a.fedavg(lr=lr, steps=steps),
        "FedDecay": a.feddecay(lr=lr, beta=0.9, steps=steps),
        "FedNAR": a.fednar(a.fedavg(lr=lr, steps=steps), weight_decay=0.001, max_norm=10.0),
        "decaying K": a.fedavg(lr=lr, steps=ft.schedules.decaying_k(steps, 0.9999)),
        "SCAFFOLD": a.scaffold(lr=lr, steps=steps),
        "FedDyn": a.feddyn(lr=lr, steps=steps),
        "FedCM": a.fedcm(lr=lr, steps=steps),
        "FedSPS": a.fedsps(a.fedavg(lr=lr, steps=steps)),
        "FedLESAM": a.fedlesam(a.fedavg(lr=lr, steps=steps)),
        # These take two gradients a step.
        "Delta-SGD": a.delta_sgd(a.fedavg(lr=lr, steps=steps)),
        "FedSAM": a.fedsam(a.fedavg(lr=lr, steps=steps)),
    }
