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
    assert table.columns["y"].dtype == np.float64


def test_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(CSV)
    table = ft.data.from_csv(path, client="user", target="label", features=["age"])
    assert table.columns["x"].ravel().tolist() == [20.0, 30.5, 40.0]
    assert table.name == "rows.csv"


def test_pandas_polars_and_arrow_give_the_same_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    polars = pytest.importorskip("polars", reason="polars is not installed")
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    rows = {**ROWS, "city": ["X", None, "X", "Z", "X", "Y"], "income": [1.5, None, 2.5, 3.0, 4.0, 5.0]}
    settings = {"client": "user", "target": "label", "strings": "one_hot", "missing": "mean"}
    expected = ft.data.from_frame(rows, **settings)
    parquet.write_table(arrow.table(rows), tmp_path / "rows.parquet")
    tables = [ft.data.from_frame(make(rows), **settings) for make in (pandas.DataFrame, polars.DataFrame, arrow.table)]
    for table in [*tables, ft.data.from_parquet(tmp_path / "rows.parquet", **settings)]:
        assert np.array_equal(table.columns["x"], expected.columns["x"], equal_nan=True)
        assert np.array_equal(table.columns["y"], expected.columns["y"])
        assert list(table.key_names or []) == list(expected.key_names or [])
        assert table.about == expected.about


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
        ({"age": [1, 2, 3, None, 5, 6]}, {"features": ["age"]}, "column 'age' .* a value in every row. Got 1 missing"),
        ({}, {"features": ["ag"]}, "Did you mean 'age'"),
        ({}, {"features": ["age"], "strings": "drop"}, "strings must be"),
        ({"label": ["no", None, "no", "no", "no", "no"]}, {"features": ["age"]}, "target 'label' .* must have a value"),
    ],
)
def test_what_is_wrong_is_named(change: dict, settings: dict, rule: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ft.FedTempoError, match=rule):
        ft.data.from_frame({**ROWS, **change}, client="user", target="label", **settings)


def test_missing_numbers_become_the_mean_of_training_rows_of_training_clients() -> None:
    rows = {**ROWS, "age": [1.0, 3.0, float("nan"), 5.0, 700.0, 900.0]}
    rows["part"] = ["train", "train", "test", "test", "train", "test"]
    table = ft.data.from_frame(rows, client="user", target="label", features=["age"], part="part", missing="mean")
    data = table.split(new_clients=[2])  # client c, whose numbers are far from the others'
    assert data.client(1, "test")["x"].tolist() == [[2.0]]


def test_missing_text_is_a_value_of_its_own_where_gaps_are_allowed() -> None:
    rows = {**ROWS, "city": ["X", None, "X", "Z", "X", "Y"]}
    settings = {"client": "user", "target": "label", "features": ["city"], "strings": "one_hot"}
    assert ft.data.from_frame(rows, **settings, missing="zero").about["features"].startswith("city=(missing), ")
    with pytest.raises(ft.DataError, match=r"column 'city' of frame must have a value in every row\. Got 1 missing"):
        ft.data.from_frame(rows, **settings)


def test_clients_of_a_csv_file_are_who_they_are_written_as(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("user,age,label\n007,1,a\n7,2,b\n1e3,3,a\n1000,4,b\n NA,5,a\n\n")
    table = ft.data.from_csv(path, client="user", target="label")
    assert list(table.key_names or []) == ["007", "1000", "1e3", "7", "NA"]


def test_a_numbered_client_column_is_read_like_a_named_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("0,1,2\n007,2,1\n7,3,0\n7,3,0\n")
    for client in (0, "0"):
        table = ft.data.from_csv(path, client=client, target="2")  # type: ignore[arg-type]
        assert list(table.key_names or []) == ["007", "7"]


def test_the_cell_that_is_no_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("user,age,label\n1,2,3.5\n1,3,oops\n")
    with pytest.raises(ft.DataError, match=r"must hold numbers where target_kind is 'numbers'\. Got 'oops'"):
        ft.data.from_csv(path, client="user", target="label", target_kind="numbers")


def test_whole_numbers_are_classes_or_numbers_as_one_says() -> None:
    rows = {**ROWS, "label": [20, 30, 20, 50, 30, 20]}
    settings = {"client": "user", "target": "label", "features": ["age"]}
    with pytest.raises(ft.DataError, match=r" 20 to 50: say target_kind='classes' .* or target_kind='numbers'"):
        ft.data.from_frame(rows, **settings)
    classes = ft.data.from_frame(rows, **settings, target_kind="classes")
    assert classes.columns["y"].tolist() == [0, 1, 0, 2, 1, 0]
    assert classes.about["classes"] == "20, 30, 50"
    numbers = ft.data.from_frame(rows, **settings, target_kind="numbers")
    assert numbers.columns["y"].tolist() == rows["label"]
    assert numbers.columns["y"].dtype.kind == "f"
    as_they_are = ft.data.from_frame({**ROWS, "label": [0, 1, 2, 1, 0, 2]}, **settings)
    assert as_they_are.columns["y"].tolist() == [0, 1, 2, 1, 0, 2]


def test_numbers_keep_all_their_digits() -> None:
    rows = {**ROWS, "age": [1_700_000_001 + i for i in range(6)]}
    table = ft.data.from_frame(rows, client="user", target="label", features=["age"], standardise=True)
    x = table.split(validation=0.0, test=0.0).columns["x"].ravel()
    assert np.allclose(np.diff(x), 1 / np.std(np.arange(6)))


@pytest.mark.parametrize(
    ("change", "settings", "rule"),
    [
        ({"user": ["a", None, "b", "b", "c", "c"]}, {}, "client 'user' of frame must have a value in every row"),
        ({"age": [1, 2, float("inf"), 4, 5, 6]}, {"missing": "mean"}, "column 'age' .* finite numbers .* Got inf"),
        ({"age": [1, 2, 1e300, 4, 5, 6]}, {}, "column 'age' .* at most 3.4e.38 in size. Got 1e.300"),
        ({"age": [1 + 2j, 2, 3, 4, 5, 6]}, {}, "column 'age' .* must be numbers, booleans or text. Got complex"),
        ({"age": np.zeros((6, 2))}, {}, r"column 'age' must hold one value per row. Got an array of shape \(6, 2\)"),
        ({}, {"features": "age"}, "features must be a list of column names. Got 'age'"),
        ({}, {"features": ["age", "label"]}, "features must be .* without the target 'label'"),
        ({}, {"features": ["age", "age"]}, "features must be different columns"),
        ({}, {"client": "label"}, "client, target and part of frame must be different columns. Got label, label"),
        ({}, {"client": None}, "client must be the name of a column. Got None"),
        (
            {},
            {"target_kind": "numbers"},
            "target 'label' .* must hold numbers where target_kind is 'numbers'. Got 'no'",
        ),
        ({"label": [0.5] * 6}, {"target_kind": "classes"}, "must hold whole numbers to be classes. Got 0.5"),
        ({"label": [None] * 6}, {}, "target 'label' .* Got 6 missing"),
        ({"label": ["no"] * 6}, {}, "target 'label' .* at least two classes. Got no in every row"),
        ({"label": [0] * 6}, {}, "target 'label' .* at least two classes. Got 0 in every row"),
    ],
)
def test_what_would_be_silently_wrong_is_refused(change: dict, settings: dict, rule: str) -> None:  # type: ignore[type-arg]
    asked = {"client": "user", "target": "label", "features": ["age"], **settings}
    with pytest.raises(ft.FedTempoError, match=rule):
        ft.data.from_frame({**ROWS, **change}, **asked)


def test_a_column_without_a_number_in_training_has_no_mean() -> None:
    rows = {**ROWS, "age": [float("nan")] * 6}
    table = ft.data.from_frame(rows, client="user", target="label", features=["age", "member"], missing="mean")
    with pytest.raises(ft.DataError, match="column 'age' must have a number in some training row"):
        table.split(validation=0.0, test=0.0)


@pytest.mark.parametrize("text", ["a,a\n1,2\n", "user,label\n1\n", ""])
def test_a_csv_file_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(ft.FedTempoError, match=r"rows\.csv"):
        ft.data.from_csv(path, client="user", target="label")


@pytest.mark.parametrize("value", [0.1, -1e9 / 3, 0.0])
def test_a_column_that_is_constant_in_training_is_not_scaled(value: float) -> None:
    """The mean of thirty times 0.1 is not 0.1: such a deviation of 1e-17 is rounding, not a scale for a new user."""
    rows = {
        "user": ["a"] * 15 + ["b"] * 15 + ["c"],
        "age": [value] * 30 + [value + 1],
        "label": ["no", "yes"] * 15 + ["no"],
    }
    data = ft.data.from_frame(rows, client="user", target="label", standardise=True).split(
        new_clients=[2], validation=0.0, test=0.0
    )
    assert data.preparation is not None and data.preparation.scale == (1.0,)
    assert data.client(2)["x"].item() == pytest.approx(1.0)


def test_test_rows_of_a_part_column_are_never_trained_on() -> None:
    rows = {"user": ["a"] * 10, "x": np.arange(10.0), "y": [0, 1] * 5, "part": ["train"] * 6 + ["test"] * 4}
    table = ft.data.from_frame(rows, client="user", target="y", part="part")
    kept, data = table.split(), table.split(validation=0.5)
    for each in (kept, data):
        assert each.client(0, "test")["x"].ravel().tolist() == [6, 7, 8, 9]
    assert kept.sizes("validation").tolist() == [0] and data.sizes("validation").tolist() == [3]
    with pytest.raises(ft.ConfigError, match=r"test must be left out: the data has test rows of its own \(4\)"):
        table.split(validation=0.2, test=0.2)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ([f"P{i:03}" for i in range(20)], "looks like names or free text, 20 different ones in 20 rows"),
        (["2024-01-31", "2024-2-1"] * 10, "looks like dates, such as '2024-01-31'"),
        (["31.01.2024", "1/2/24"] * 10, "looks like dates, such as '31.01.2024'"),
        (["4,46", "-5,1"] * 10, "looks like numbers with decimal commas, such as '4,46': decimal=',' reads them"),
        (["heart", "other"] * 10, None),
        (["A,1", "B,2"] * 10, None),
    ],
)
def test_text_that_is_no_category_is_named(
    texts: list[str], reason: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    rows = {"user": ["a", "b"] * 10, "text": texts, "label": ["no", "yes"] * 10}
    ft.data.from_frame(rows, client="user", target="label", strings="one_hot")
    assert (reason in caplog.text) if reason else not caplog.text


def test_a_european_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("user;age;lab;dose;bmi;label\na;20;4,5;1.234;21.5;no\nb;30; -0,25;2.500;30.125;yes\n")
    settings = {"client": "user", "target": "label", "separator": ";"}
    table = ft.data.from_csv(path, **settings, decimal=",", features=["age", "lab", "bmi"])
    assert table.columns["x"].tolist() == [[20.0, 4.5, 21.5], [30.0, -0.25, 30.125]]
    with pytest.raises(ft.DataError, match=r"column 'dose' .* holds text"):  # 1.234 may be 1234
        ft.data.from_csv(path, **settings, decimal=",", features=["dose"])
    with pytest.raises(
        ft.DataError, match=r"rows\.csv must have ',' between its cells, or separator=';' must be given"
    ):
        ft.data.from_csv(path, client="user", target="label")
    with pytest.raises(ft.ConfigError, match=r"decimal must be '\.' or ','\. Got ';'"):
        ft.data.from_csv(path, **settings, decimal=";")


def test_a_column_of_sample_weights_weighs_rows_and_is_no_feature() -> None:
    rows = {name: ROWS[name] for name in ("user", "age", "label")} | {"sample_weight": [1, 2, 3, 4, 5, 6]}
    for features in (None, ["age"]):
        table = ft.data.from_frame(rows, client="user", target="label", features=features, standardise=True)
        assert table.about["features"] == "age"
        assert table.split(validation=0.0, test=0.0).columns["sample_weight"].tolist() == [1, 2, 3, 4, 5, 6]
    listed = ft.data.from_frame(rows, client="user", target="label", features=["age", "sample_weight"])
    assert "sample_weight" not in listed.columns and listed.columns["x"].shape == (6, 2)
    with pytest.raises(ft.DataError, match="'sample_weight' of frame must have a value in every row"):
        ft.data.from_frame({**rows, "sample_weight": [1, None, 3, 4, 5, 6]}, client="user", target="label")
