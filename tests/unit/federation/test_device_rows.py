"""Rows on an accelerator: one copy where it fits, rows sent when needed where it does not."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.data.federated import FederatedData
from fedtempo.federation import device_rows
from fedtempo.federation.device_rows import DeviceRows
from fedtempo.training.prepare import prepare

PLENTY = 2**30
ROWS = np.array([[5, 0], [3, 3]])


@pytest.fixture
def data() -> FederatedData:
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(4, 3)).astype(np.float32), rng.integers(0, 2, 4)) for _ in range(2)]
    return FederatedData.from_clients(clients)


def reads_of(data: FederatedData, free: int | None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows the columns were asked for, again and again, while the same rows are taken three times."""
    asked: list[int] = []
    take = FederatedData.take

    def counted(self: FederatedData, rows: np.ndarray, dtype: torch.dtype = torch.float32) -> Any:
        asked.append(rows.size)
        return take(self, rows, dtype)

    expected = data.take(ROWS, torch.float64)
    monkeypatch.setattr(device_rows, "free_memory", lambda device: free)
    monkeypatch.setattr(FederatedData, "take", counted)
    rows = DeviceRows()
    for _ in range(3):
        taken = rows.take(data, ROWS, torch.float64, "cpu")
        assert all(torch.equal(taken[name], expected[name]) for name in expected)
        assert {name: t.dtype for name, t in taken.items()} == {name: t.dtype for name, t in expected.items()}
    return asked


def test_rows_that_fit_are_read_once(data: FederatedData, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reads_of(data, PLENTY, monkeypatch) == [1, 8]


@pytest.mark.parametrize("free", [None, 8 * (3 * 8 + 8) * 4 - 1])
def test_rows_that_do_not_fit_are_sent_when_needed(
    free: int | None, data: FederatedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown memory counts as none; else a quarter of what is free must hold 8 rows of 3 + 1 numbers."""
    assert reads_of(data, free, monkeypatch)[-3:] == [ROWS.size] * 3


def test_a_device_that_fills_up_meanwhile_gets_rows_when_needed(
    data: FederatedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = FederatedData.take

    def full(self: FederatedData, rows: np.ndarray, dtype: torch.dtype = torch.float32) -> Any:
        if rows.size == 8:
            raise torch.OutOfMemoryError("no memory")
        return take(self, rows, dtype)

    monkeypatch.setattr(device_rows, "free_memory", lambda device: PLENTY)
    monkeypatch.setattr(FederatedData, "take", full)
    assert DeviceRows().take(data, ROWS, torch.float32, "cpu")["x"].shape == (2, 2, 3)


def test_columns_that_are_read_from_files_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Files:
        """Eight rows that are made when they are asked for."""

        shape, dtype, ndim = (8, 2), np.dtype(np.float32), 2

        def __len__(self) -> int:
            return 8

        def __getitem__(self, rows: Any) -> np.ndarray:
            return np.ones((len(np.arange(8)[rows]), 2), dtype=np.float32)

    columns: Any = {"x": Files(), "y": np.zeros(8, dtype=np.int64)}
    data = FederatedData(columns, np.array([[0, 8, 8, 8]]))
    assert reads_of(data, PLENTY, monkeypatch) == [ROWS.size] * 3


def test_another_process_starts_without_a_copy(data: FederatedData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_rows, "free_memory", lambda device: PLENTY)
    rows = DeviceRows()
    rows.take(data, ROWS, torch.float32, "cpu")
    assert len(pickle.dumps(rows)) < 200
    assert isinstance(pickle.loads(pickle.dumps(rows)), DeviceRows)


def test_memory_of_a_device_that_torch_cannot_ask_is_unknown() -> None:
    assert device_rows.free_memory("meta") is None


def test_other_clients_rows_are_not_taken_from_the_old_copy(
    data: FederatedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`personalize` fine-tunes on the rows of a user that the run has never seen."""
    monkeypatch.setattr(device_rows, "free_memory", lambda device: PLENTY)
    algorithm = ft.algorithms.fedavg(0.1, 1)
    prepared = prepare(model=ft.models.mlp(3, [2], 2), data=data, algorithm=algorithm, rounds=1, device="cpu:0")
    federation = prepared.federation
    old = federation.problem.client_rows(0)["x"]
    other = FederatedData.from_clients([(np.ones((4, 3), np.float32), np.zeros(4, np.int64))])
    assert federation.on_data(other).problem.client_rows(0)["x"].tolist() == [[1.0] * 3] * 4
    assert torch.equal(federation.problem.client_rows(0)["x"], old)
