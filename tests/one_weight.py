"""The smallest federation: one weight, one number a row, and steps that a reader can follow in the head.

The loss of a row y is (w - y)^2, its gradient 2 (w - y). At a rate of 1/4 a full-batch step takes w half of the way to
the mean of the client's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fedtempo as ft
from fedtempo.backends import InProcess
from fedtempo.federation.costs import Ledger
from fedtempo.training.experiment import Experiment
from fedtempo.training.prepare import prepare
from fedtempo.training.round import Run
from fedtempo.training.state import State
from fedtempo.training.storage.in_memory import MemoryStore

HALFWAY = 0.25
"""The rate at which a step goes half of the way."""


class OneWeight(nn.Module):
    """Predicts the same number for every row."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([start]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w


def clients_of(*rows: Sequence[float]) -> ft.data.FederatedData:
    """One client for each list of targets."""
    return ft.data.FederatedData.from_clients(
        [(np.ones((len(y), 1)), np.array(y, dtype=np.float64)[:, None]) for y in rows]
    )


def experiment(*rows: Sequence[float], algorithm: ft.Algorithm | None = None, **settings: Any) -> Experiment:
    """An experiment on clients with these targets: by default one step halfway, in float64, on the full batch."""
    usual = {"rounds": 1, "batch_size": None, "dtype": torch.float64, "evaluation": None, "backend": "serial"}
    chosen = algorithm or ft.algorithms.fedavg(lr=HALFWAY, steps=1)
    return prepare(model=OneWeight(), data=clients_of(*rows), algorithm=chosen, **{**usual, **settings})


def first_state(prepared: Experiment, **more: Any) -> State:
    """The state before the first round."""
    server = prepared.federation.algorithm.server
    return State(prepared.first_shared, server.init(prepared.first_shared), **more)


def run_on(prepared: Experiment, on_nodes: bool = False) -> Run:
    """The run of an experiment in this process, without a folder; with `on_nodes`, as if its clients were real."""
    engine = InProcess(prepared.federation, prepared.backend)
    return Run.of(prepared, engine, MemoryStore(), ledger_of(prepared), on_nodes)


def ledger_of(prepared: Experiment) -> Ledger:
    """Counts costs from the first round on."""
    return Ledger(prepared.federation, prepared.first_shared, {})
