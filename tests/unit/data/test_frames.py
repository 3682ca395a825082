"""Frames, CSV and Parquet files: features, targets, clients; what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedtempo as ft

ROWS = {
    "user": ["b", "a", "b", "a", "c", "c"],
    "age": [20, 30, 40, 50, 60, 70],
    "city": ["X", "Y", "X", "Z", "X", "Y"],
    "member": [True, False, True, False, True, False],
    "label": ["no", "yes", "no", "yes", "no", "yes"],
}
CSV = "user,age,city,label\nb,20,X,no\na,30.5,Y,yes\n b,40,X,no\n"


def test_numbers_booleans_and_one_hot_strings() -> None:
    table = ft.data.from_frame(ROWS, client="user", target="label", strings="one_hot")
    assert table.about["features"] == "age, city=X, city=Y, city=Z, member"
    assert table.columns["x"][0].tolist() == [20, 1, 0, 0, 1]
    assert table.columns["y"].tolist() == [0, 1, 0, 1, 0, 1]
    data = table.split(validation=0.0, test=0.0)
    assert [data.name_of(c) for c in range(3)] == ["0 (a)", "1 (b)", "2 (c)"]


def test_codes_and_chosen_features() -> None:
    table = ft.data.from_frame(ROWS, client="user", target="label", features=["city"], strings="codes")
    assert table.columns["x"].ravel().tolist() == [0, 1, 0, 2, 0, 1]


def test_a_float_target_is_regressed_on() -> None:
    table = ft.data.from_frame({**ROWS, "label": [0.5] * 6}, client="user", target="label", features=["age"])
    assert table.columns["y"].dtype == np.float32


def test_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(CSV)
    table = ft.data.from_csv(path, client="user", target="label", features=["age"])
    assert table.columns["x"].ravel().tolist() == [20.0, 30.5, 40.0]
    assert table.name == "rows.csv"


def test_pandas_polars_and_arrow_give_the_same_table(tmp_path: Path) -> None:
    expected = ft.data.from_frame(ROWS, client="user", target="label", strings="one_hot")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frames = [pandas.DataFrame(ROWS)]
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    frames.append(arrow.table(ROWS))
    arrow.parquet = pytest.importorskip("pyarrow.parquet")
    arrow.parquet.write_table(frames[1], tmp_path / "rows.parquet")
    tables = [ft.data.from_frame(f, client="user", target="label", strings="one_hot") for f in frames]
    tables.append(ft.data.from_parquet(tmp_path / "rows.parquet", client="user", target="label", strings="one_hot"))
    for table in tables:
        assert np.array_equal(table.columns["x"], expected.columns["x"])
        assert np.array_equal(table.columns["y"], expected.columns["y"])
        assert list(table.key_names or []) == list(expected.key_names or [])


def test_features_are_standardised_on_training_rows_of_training_clients_only() -> None:
    rows = {**ROWS, "part": ["train", "train", "test", "train", "train", "test"]}
    table = ft.data.from_frame(rows, client="user", target="label", features=["age"], part="part", standardise=True)
    data = table.split()
    x = np.concatenate([data.client(c, "train")["x"].numpy() for c in data.clients])
    assert x.mean() == pytest.approx(0.0, abs=1e-6)
    assert x.std() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "settings", "rule"),
    [
        ({}, {}, "column 'city' of frame holds text. Say what becomes of it"),
        ({"age": [1, 2, 3, None, 5, 6]}, {"features": ["age"]}, "column 'age' .* missing numbers. Got 1"),
        ({}, {"features": ["ag"]}, "Did you mean 'age'"),
        ({}, {"features": ["age"], "strings": "drop"}, "strings must be"),
        ({"label": ["no", None, "no", "no", "no", "no"]}, {"features": ["age"]}, "target 'label' .* must have a value"),
    ],
)
def test_what_is_wrong_is_named(change: dict, settings: dict, rule: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ft.FedTempoError, match=rule):
        ft.data.from_frame({**ROWS, **change}, client="user", target="label", **settings)


def test_missing_numbers_become_the_mean() -> None:
    rows = {**ROWS, "age": [1.0, 3.0, float("nan"), 5.0, 7.0, 9.0]}
    table = ft.data.from_frame(rows, client="user", target="label", features=["age"], missing="mean")
    assert table.columns["x"][2, 0] == 5.0


@pytest.mark.parametrize("text", ["a,a\n1,2\n", "user,label\n1\n", ""])
def test_a_csv_file_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(ft.FedTempoError, match=r"rows\.csv"):
        ft.data.from_csv(path, client="user", target="label")
