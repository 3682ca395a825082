"""A run over mapped files gives back the pages it has read, and reads the same numbers again."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.data import mapped_pages
from fedtempo.data.mapped_pages import MappedPages
from fedtempo.errors import ConfigError

ROWS, WIDTH = 1 << 13, 1 << 10


@pytest.fixture
def column(tmp_path: Path) -> np.ndarray:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH))
    loaded: np.ndarray = np.load(path, mmap_mode="r")
    return loaded


needs_statm = pytest.mark.skipif(not mapped_pages.STATM.exists(), reason="this system keeps no /proc/self/statm")


@needs_statm
def test_pages_are_given_back_when_they_are_many(column: np.ndarray) -> None:
    most = 4 << 20
    here, before, largest = MappedPages([column], most), mapped_pages._held(), 0
    for start in range(0, ROWS, 64):
        rows = np.take(column, range(start, start + 64), axis=0)
        assert rows[0, 0] == start * WIDTH
        here.note(rows.nbytes)
        largest = max(largest, mapped_pages._held() - before)
    assert largest < column.nbytes / 2
    assert column[5, 7] == 5 * WIDTH + 7


@needs_statm
def test_what_is_written_to_is_never_given_back(column: np.ndarray, tmp_path: Path) -> None:
    private = np.load(tmp_path / "x.npy", mmap_mode="c")
    private[3, 3] = -1.0
    here = MappedPages([private, private[2:5], np.zeros(3)])
    here.note(1 << 30)
    here.release()
    assert private[3, 3] == -1.0 and here._maps == []


@needs_statm
def test_a_part_of_a_file_is_known_and_the_file_counts_once(column: np.ndarray) -> None:
    assert len(MappedPages([column, column[10:20], column[:, :5]])._maps) == 1


def test_data_of_mapped_columns_can_be_read_and_sent(column: np.ndarray) -> None:
    bounds = np.array([[0, 4, 4, 4], [4, 8, 8, 8]])
    data = ft.data.FederatedData({"x": column, "y": np.zeros(ROWS, dtype=np.int64)}, bounds)
    data.check()
    again = pickle.loads(pickle.dumps(data))
    assert (again.client(1)["x"] == data.client(1)["x"]).all()
    assert data.take(np.array([[0, 5]]))["x"][0, 1, 2] == 5 * WIDTH + 2


def test_the_limit_must_be_a_number_of_bytes() -> None:
    with pytest.raises(ConfigError, match="most must be an int >= 1"):
        MappedPages([], 0)
