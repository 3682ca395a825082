"""Columns that a frame's library declares to be categories."""

from __future__ import annotations

from typing import Any

import pytest

import fedtempo as ft
from tests.later import Later

pandas = Later("pandas")
pyarrow = Later("pyarrow")
SIZES = ["small", "medium", "large"]


def frame(**columns: object) -> dict[str, object]:
    rows = {"user": ["a", "a", "b", "b"], "age": [20.0, 31.0, 42.0, 53.0], "y": [0, 1, 1, 0]}
    return {**rows, **columns}


def declared(values: list[Any], categories: list[Any] | None = None, ordered: bool = True) -> object:
    return pandas.Categorical(values, categories=categories, ordered=ordered)


def table(columns: dict[str, object], **settings: Any) -> ft.data.Table:
    return ft.data.from_frame(pandas.DataFrame(columns), client="user", target="y", **settings)


def test_codes_follow_the_order_that_categories_are_declared_in() -> None:
    """They were numbered by the alphabet, so that large came before medium and small."""
    made = table(frame(size=declared(["large", "small", "medium", "small"], SIZES)), strings="codes")
    assert made.columns["x"][:, 1].tolist() == [2, 0, 1, 0]
    data = made.split(seed=0)
    later_rows = {"age": [1.0, 2.0], "size": ["small", "large"]}
    assert data.preparation is not None and data.preparation.rows(later_rows)[:, 1].tolist() == [0, 2]
    assert data.preparation.as_dict()["features"][1]["values"] == SIZES  # type: ignore[index]


def test_classes_follow_the_order_that_categories_are_declared_in() -> None:
    """An ordinal loss compares class numbers."""
    made = table(frame(y=declared(["large", "small", "medium", "small"], SIZES)))
    assert made.columns["y"].tolist() == [2, 0, 1, 0] and made.about["classes"] == "small, medium, large"
    plain = table(frame(y=declared(["large", "small", "medium", "small"], SIZES, ordered=False)))
    assert plain.about["classes"] == "large, medium, small", "without an order, the sorted one"


def test_numbers_that_are_categories_are_no_quantities() -> None:
    """A ward's number was one feature, in which ward 10 is five times ward 2."""
    columns = frame(ward=declared([10, 2, 2, None], ordered=False))
    with pytest.raises(ft.DataError, match=r"column 'ward' of frame holds categories. Say what becomes of it"):
        table(columns, missing="zero")
    made = table(columns, strings="one_hot", missing="zero")
    assert made.about["features"] == "age, ward=2, ward=10, ward=(missing)"
    assert made.columns["x"][:, 1:].tolist() == [[0, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 1]]


def test_bins_are_categories_in_the_order_of_their_numbers() -> None:
    ages = pandas.cut(pandas.Series([5, 100, 40, 9]), [0, 9, 90, 900])
    made = table(frame(group=ages), strings="codes")
    assert made.columns["x"][:, 1].tolist() == [0, 2, 1, 0]


def test_arrow_keeps_the_order_too() -> None:
    """As a Parquet file gives it."""
    columns = pandas.DataFrame(frame(size=declared(["large", "small", "medium", "small"], SIZES)))
    made = ft.data.from_frame(pyarrow.Table.from_pandas(columns), client="user", target="y", strings="codes")
    assert made.columns["x"][:, 1].tolist() == [2, 0, 1, 0]


def test_clients_that_are_categories_keep_their_names() -> None:
    data = table(frame(user=declared([10, 10, 2, 2]))).split(seed=0)
    assert data.names == ["10", "2"]
