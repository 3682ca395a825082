"""`csv` and `parquet` by name: the same tables as `from_csv` and `from_parquet`, and what is missing is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedtempo.config import parse
from fedtempo.data import from_csv, load
from fedtempo.errors import ConfigError

TEXT = "who,a,b,y\nu,1,x,0\nu,2,y,1\nv,3,x,0\nv,4,x,1\n"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(TEXT)
    return path


def test_csv_by_name_is_from_csv(rows: Path) -> None:
    table = load("csv", path=str(rows), client="who", target="y", strings="codes")
    other = from_csv(rows, client="who", target="y", strings="codes")
    assert np.array_equal(table.columns["x"], other.columns["x"])
    assert table.key_names == ["u", "v"]
    assert load("csv", path=str(rows), client="who", target="y", features=["a"]).columns["x"].shape == (4, 1)


def test_parquet_by_name(rows: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="the frames extra is not installed")
    pandas.read_csv(rows).to_parquet(tmp_path / "rows.parquet")
    table = load("parquet", path=str(tmp_path / "rows.parquet"), client="who", target="y", features=["a"])
    assert table.columns["x"].ravel().tolist() == [1, 2, 3, 4]


def test_what_is_missing_is_named(rows: Path) -> None:
    with pytest.raises(ConfigError, match="data set 'csv' needs client, target"):
        load("csv", path=str(rows))
    values = {
        "rounds": 1,
        "data": {"name": "csv", "path": str(rows), "target": "y"},
        "model": {"name": "mlp", "inputs": 1, "outputs": 2},
        "algorithm": {"name": "fedavg", "lr": 0.1, "steps": 1},
    }
    with pytest.raises(ConfigError, match=r"data\.client must be given for 'csv'"):
        parse(values)
