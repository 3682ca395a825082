"""Columns of frames and CSV files: what a cell is, what is missing, what is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from fedtempo.data.frame_columns import columns_of, missing_in, read_csv, settled, words_of
from fedtempo.errors import DataError


def _read(tmp_path: Path, text: str, **settings: list[str]) -> dict[str, np.ndarray]:
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return read_csv(path, **settings)


def test_a_csv_column_is_what_all_its_cells_are(tmp_path: Path) -> None:
    found = _read(tmp_path, "a,b,c,d,e\n1,1.5, x,1_0,NA\n-2,NA,,2,NA\n", names=["e"])
    assert found["a"].tolist() == [1, -2]
    assert found["b"][0] == 1.5
    assert np.isnan(found["b"][1])
    assert found["c"].tolist() == ["x", None]
    assert found["d"].tolist() == ["1_0", "2"]
    assert found["e"].tolist() == ["NA", "NA"]


def test_whole_numbers_that_no_machine_word_holds(tmp_path: Path) -> None:
    assert _read(tmp_path, "a\n123456789012345678901\n1\n")["a"].dtype == np.float64
    assert np.isinf(_read(tmp_path, f"a\n{'1' * 5000}\n1\n")["a"][0])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            "a;b\n1;2\n",
            "rows.csv must have ',' between its cells, or separator=';' must be given. Got the header 'a;b'",
        ),
        ("a,a\n1,2\n", "rows.csv must start with a line of different column names"),
        ("a,b\n1,2\n\n3\n", "rows.csv, line 4 must have 2 cells. Got 1"),
    ],
)
def test_a_csv_file_that_cannot_be_read_says_where(tmp_path: Path, text: str, rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        _read(tmp_path, text)


def test_objects_become_what_they_hold() -> None:
    def kind(values: list[object]) -> str:
        return settled(np.array(values, dtype=object), "c", "frame").dtype.kind

    assert [kind([True, False]), kind([1, 2]), kind([1, None]), kind([Decimal("1.5"), None]), kind(["a", None])] == [
        *"biff",
        "O",
    ]
    assert kind([10**30, 1]) == "f"
    assert missing_in(settled(np.array(["a", None, float("nan")], dtype=object), "c", "frame")).tolist() == [0, 1, 1]


def test_gaps_of_pandas_are_gaps() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"n": pandas.array([1, None], "Int64"), "s": pandas.array(["a", None], "string")})
    for column, values in columns_of(frame).items():
        assert missing_in(settled(values, column, "frame")).tolist() == [False, True]


def test_names_of_numbers() -> None:
    assert words_of(np.array([3.0, 2.5])).tolist() == ["3", "2.5"]


class Lazy:
    def collect(self) -> None: ...
    def collect_schema(self) -> None: ...


@pytest.mark.parametrize(
    ("frame", "rule"), [(Lazy(), r"give frame\.collect\(\)"), ([1], "Got list"), ({}, "must have rows")]
)
def test_what_is_no_frame(frame: object, rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        columns_of(frame)


def test_columns_of_one_name_are_refused() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(DataError, match=r"different column names\. Got 'a' more than once"):
        columns_of(frame)


@pytest.mark.parametrize("gap", [None, float("nan"), np.float64("nan")])
def test_gaps_in_lists_of_text_are_gaps_and_not_the_word_nan(gap: object) -> None:
    for frame in ({"c": ["a", gap, "nan"]}, {"c": ("a", gap, "nan")}):
        values = settled(columns_of(frame)["c"], "c", "frame")
        assert missing_in(values).tolist() == [False, True, False]
        assert values[2] == "nan"


def test_masked_cells_are_gaps() -> None:
    masked = {"n": np.ma.array([1, 999], mask=[0, 1]), "s": np.ma.array(["a", "?"], mask=[0, 1])}
    for column, values in columns_of(masked).items():
        assert missing_in(settled(values, column, "frame")).tolist() == [False, True]
    assert columns_of({"n": np.ma.array([1, 2])})["n"].tolist() == [1, 2]


def test_keys_that_read_the_same_are_refused() -> None:
    with pytest.raises(DataError, match=r"different column names\. Got '1' more than once"):
        columns_of({1: [1, 2], "1": [3, 4]})


def test_lists_of_different_lengths_are_no_column() -> None:
    with pytest.raises(DataError, match=r"column 'c' of frame must be numbers, booleans or text\. Got list"):
        settled(columns_of({"c": [[1], [1, 2]]})["c"], "c", "frame")


def test_a_file_of_another_encoding_is_told_how_to_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("user,label\nZürich,1\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"rows\.csv must be CSV in UTF-8 \(in Excel, save it as 'CSV UTF-8'\)"):
        read_csv(path, ("user",))
