"""Which code trains a model, and how many clients at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from torch import nn

import fedtempo as ft
from fedtempo.backends import block_size, choose, serial, vectorised
from fedtempo.backends import choice as rules
from fedtempo.backends.choice import equal_blocks
from fedtempo.training.prepare import prepare


@pytest.mark.parametrize("most", [1, 7, 12, 512])
@pytest.mark.parametrize("cohort", [1, 1.5, 12, 13, 20, 100, 1000.5])
def test_a_cohort_is_cut_into_no_more_blocks_and_equal_ones(most: int, cohort: float) -> None:
    size, clients = equal_blocks(most, cohort), math.ceil(cohort)
    blocks = math.ceil(clients / size)
    assert size <= most and blocks == math.ceil(clients / most)
    assert blocks == 1 or clients - (blocks - 1) * size > size - blocks


def test_blocks_depend_on_the_model_alone() -> None:
    assert block_size(610, vectorised) == 512
    assert block_size(159_010, vectorised) == 12
    assert block_size(159_010, serial) == block_size(10_000_000, serial) == 1
    assert block_size(610, serial) == 64
    assert block_size(2_346, vectorised, convolves=True) == 100
    assert block_size(100_000, vectorised, convolves=True) == 20


def test_auto_looks_at_the_model_and_leaves_workers_to_calibration() -> None:
    small, large, images = nn.Linear(60, 10), nn.Linear(2000, 500), ft.models.cnn((1, 28, 28), 10)
    assert choose("auto", None, None, small, cohort=10.0) == (vectorised, 1, 512, False)
    assert choose("auto", None, None, images, cohort=2.0).backend is serial
    long = choose("auto", None, None, large, cohort=10.0)
    assert (long.backend, long.block) == (serial, 1) and long.calibrates == (long.workers > 1)
    assert choose("auto", 1, None, large, cohort=10.0) == (serial, 1, 1, False)
    assert choose("serial", None, None, large, cohort=10.0) == (serial, 1, 1, False)
    assert choose("vectorised", 3, 7, large, cohort=1.0) == (vectorised, 3, 7, False)
    assert str(choose("vectorised", 3, 7, large, 1.0)) == "vectorised code in 3 processes, 7 clients to a block"


def test_auto_runs_small_convolutions_side_by_side_where_batches_are_small() -> None:
    """The rule of the grid in docs/benchmarks.md: channels of the widest layer times rows of a batch, at most 128."""

    def small(channels: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, channels, 3), nn.Flatten(), nn.Linear(channels, 10))

    chosen = {(c, b): choose("auto", 1, None, small(c), 10.0, batch=b).backend for c in (8, 32) for b in (4, 16, 64)}
    assert [pair for pair, code in chosen.items() if code is vectorised] == [(8, 4), (8, 16), (32, 4)]
    large = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(8 * 26 * 26, 200))
    assert choose("auto", 1, None, large, 10.0, batch=4).backend is serial


def test_heads_on_features_that_are_computed_once_run_side_by_side() -> None:
    """Measured in docs/benchmarks.md: PFLEGO and FedRep gain up to 250,000 parameters, FedPer up to 100,000."""

    def planned(algorithm: ft.Algorithm, hidden: int = 200) -> tuple[float, str]:
        data = ft.data.FederatedData.from_clients([(np.zeros((20, 784), np.float32), np.arange(20) % 2)] * 2)
        experiment = prepare(model=ft.models.mlp(784, [hidden], 10), data=data, algorithm=algorithm, rounds=1)
        return rules.parameters_of_a_step(experiment.federation), experiment.backend.name

    a = ft.algorithms
    body, head = 784 * 200 + 200, 200 * 10 + 10
    assert planned(a.fedper(lr=0.1, steps=50)) == (body + head, "serial")
    assert planned(a.pflego(head_lr=0.1, server_lr=0.1, steps=50)) == (head + body / 50, "vectorised")
    mixed = a.fedrep(lr=0.1, head_steps=40, body_steps=10)
    assert planned(mixed) == ((40 * head + 10 * (body + head)) / 50, "vectorised")
    assert planned(a.pflego(head_lr=0.1, server_lr=0.1, steps=50), hidden=400)[1] == "serial"
    images = ft.models.cnn((1, 28, 28), 10)
    assert choose("auto", 1, None, images, 10.0, batch=20, moved=1_000.0).backend is serial


def test_the_full_batch_counts_as_the_rows_of_a_middling_client() -> None:
    def chosen(rows: int) -> str:
        columns = {"x": np.zeros((3 * rows, 8, 8), np.float32), "y": np.arange(3 * rows) % 2}
        bounds = np.array([[c * rows, *[(c + 1) * rows] * 3] for c in range(3)])
        model = nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(288, 2))
        data, algorithm = ft.data.FederatedData(columns, bounds), ft.algorithms.fedavg(lr=0.1, steps=1)
        return prepare(model=model, data=data, algorithm=algorithm, rounds=1, batch_size=None).backend.name

    assert (chosen(16), chosen(17)) == ("vectorised", "serial")


def test_on_an_accelerator_clients_run_side_by_side_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as half of the free memory holds: 1 GB, and 16 copies of a million numbers of 4 bytes a client."""
    large = nn.Linear(2000, 500)
    monkeypatch.setattr(rules, "free_memory", lambda device: {"cuda:1": 2 * 10**9, "mps": None}[device])
    assert choose("auto", None, None, large, 10.0, device="cuda:1") == (vectorised, 1, 8, False)
    assert choose("auto", None, 3, large, 10.0, device="cuda:1") == (vectorised, 1, 3, False)
    assert choose("auto", 2, None, large, 10.0, device="cuda:1").workers == 2
    assert choose("auto", None, None, large, 10.0, device="mps") == (vectorised, 1, 4, False)
    assert choose("auto", None, None, large, 10.0, vectorises=False, device="cuda:1") == (serial, 1, 1, False)
    assert choose("serial", None, None, large, 10.0, device="cuda:1") == (serial, 1, 1, False)
