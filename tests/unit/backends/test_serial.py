"""The serial backend: how a client's batches are copied changes no number."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft

serial = importlib.import_module("fedtempo.backends.serial")  # the package has a backend of that name


def trained(width: int, batches: str, repeat: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    columns = {"x": rng.standard_normal((60, width), np.float32), "y": rng.integers(0, 3, 60)}
    bounds = np.array([[0, 25, 25, 25], [25, 60, 60, 60]])
    known = ft.algorithms
    algorithm = known.pfedme(local_rounds=3, inner_steps=2) if repeat else known.fedavg(lr=0.1, steps=7)
    result = ft.run(
        model=nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, 3)),
        data=ft.data.FederatedData(columns, bounds),
        algorithm=algorithm,
        rounds=2,
        batch_size=8,
        batches=batches,
        backend="serial",
        evaluation=None,
        progress=False,
    )
    return result.last.shared


@pytest.mark.parametrize("batches", ["epochs", "in_order", "replace"])
@pytest.mark.parametrize("repeat", [False, True])
def test_batches_copied_together_are_those_copied_one_by_one(
    batches: str, repeat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = trained(16, batches, repeat)
    monkeypatch.setattr(serial, "COPIED_BYTES", 1)
    alone = trained(16, batches, repeat)
    assert all(torch.equal(together[name], alone[name]) for name in alone)


def test_batches_are_copied_together_only_where_each_starts_a_cache_line() -> None:
    def count(width: int) -> int:
        data = {"x": torch.zeros(40, width), "y": torch.zeros(40, dtype=torch.int64)}
        return int(serial._copied_together(data, 8))

    assert count(16) == serial.COPIED_BYTES // (8 * (16 * 4 + 8))
    assert count(15) == 1 and count(1 << 20) == 1


def test_tokens_are_copied_a_few_batches_at_a_time_too() -> None:
    tokens = {"x": torch.zeros(40, 128, dtype=torch.int64), "y": torch.zeros(40, dtype=torch.int64)}
    assert serial._copied_together(tokens, 32) == serial.COPIED_BYTES // (32 * (128 * 8 + 8))
