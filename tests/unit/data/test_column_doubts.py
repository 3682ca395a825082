"""Columns that are hardly what they seem: ids, dates, slips, names in two spellings."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.data.column_doubts import doubt, no_numbers, spelled_twice, strangest


@pytest.mark.parametrize(("cells", "named"), [(["1", "oops"], "oops"), ([None, "1"], "1"), ([b"1"], b"1")])
def test_the_cell_that_keeps_a_column_from_being_numbers(cells: list[object], named: object) -> None:
    assert strangest(np.array(cells, dtype=object)) == named


SPARSE = np.arange(40) ** 2 * 1000
NUMBERS = {
    "a number for every row": ("", np.arange(40), "ids, 40 different"),
    "in order, with gaps": ("case", np.array([*range(100, 139), 150]), "ids, 40 different"),
    "in any order": ("case", 100 + np.arange(40) * 7 % 40, "ids, 40 different"),
    "ages of few": ("age", np.array([*range(30, 50), 71])[::-1], None),
    "named an id": ("patient_id", SPARSE, "ids, 40 different"),
    "with a gap": ("PatientID", np.where(np.arange(40) == 3, np.nan, SPARSE), "ids, 39 different"),
    "each in two rows": ("patientId", np.repeat(SPARSE, 2), "ids, 40 different"),
    "a few kinds": ("ward id", np.arange(40) % 4, None),
    "not an id": ("paid", SPARSE, None),
    "all different and far apart": ("platelets", SPARSE, None),
    "ages": ("age", 20 + np.arange(40) // 2, None),
    "measured": ("case", np.arange(40) + 0.5, None),
    "days": ("visit", np.array([20240131, 20231201] * 20), "dates, such as 20240131"),
    "eight digits": ("count", np.array([20240131, 20249999] * 20), None),
    "too few rows": ("", np.arange(10), None),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_that_are_no_measurements(case: str) -> None:
    column, values, reason = NUMBERS[case]
    found = doubt(column, values)
    assert found is None if reason is None else found is not None and found.startswith(reason)


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        (["2024/01/31", "2024/2/1"], "dates"),
        (["31 Jan 2024", "1. März 2024"], "dates"),
        (["Jan 31, 2024", "February 1, 2024"], "dates"),
        (["08:30", "14:05:10"], "times"),
        (["8:30 AM", "2:05 pm"], "times"),
        (["1,000", "12,345"], "numbers with commas between thousands"),
        (["1,5", "12,345"], "numbers with decimal commas"),
    ],
)
def test_texts_that_are_no_categories(texts: list[str], what: str) -> None:
    found = doubt("column", np.array(texts * 10, dtype=object))
    assert found is not None and found.startswith(f"{what}, such as")


def test_numbers_beside_a_sign_for_what_is_missing_are_no_categories() -> None:
    levels = [f"{number / 10}" for number in range(20)]
    assert set(no_numbers(np.array([*levels, *["<0.1"] * 8], dtype=object))) == {"<0.1"}
    assert not no_numbers(np.array(["1", "2", "3", "unknown"] * 8, dtype=object))  # grades


def test_names_in_two_spellings() -> None:
    composed = "Zürich"
    apart = unicodedata.normalize("NFD", composed)
    assert spelled_twice(["Bern", composed, apart]) == (composed, apart)
    assert spelled_twice(["yes", "no", "YES"]) == ("yes", "YES")
    assert spelled_twice(["A  1", "A 1"]) == ("A  1", "A 1")
    assert spelled_twice(["7", "007", "a", "à"]) is None


def test_spellings_and_ids_are_said(caplog: pytest.LogCaptureFixture) -> None:
    rows = {"site": ["a", "A"] * 10, "row": list(range(20)), "ward": ["x", "y"] * 10, "ill": ["no", "No"] * 10}
    ft.data.from_frame(rows, client="site", target="ill", strings="one_hot")
    assert "client 'site' of frame: 'A' and 'a' are taken for two clients" in caplog.text
    assert "target 'ill' of frame: 'No' and 'no' are taken for two classes" in caplog.text
    assert "column 'row' of frame is taken for a number, but looks like ids" in caplog.text
    assert "ward" not in caplog.text


def test_a_word_for_nothing_among_clients_or_classes_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "rows.csv").write_text("site,age,ill\na,1,no\nNaN,2,yes\na,3,NA\nb,4,no\n")
    ft.data.from_csv(tmp_path / "rows.csv", client="site", target="ill")
    assert "client 'site' of rows.csv: 'NaN' is taken for a name; leave cells empty that are missing" in caplog.text
    assert "target 'ill' of rows.csv: 'NA' is taken for a name" in caplog.text
    caplog.clear()
    ft.data.from_frame({"site": ["a", "b"], "age": [1, 2], "ill": ["no", "yes"]}, client="site", target="ill")
    assert not caplog.text


def test_text_that_is_refused_names_the_cell_that_makes_it_text() -> None:
    rows = {"site": ["a", "b"] * 20, "age": [*map(str, range(39)), "?"], "ill": [0, 1] * 20}
    with pytest.raises(
        ft.DataError, match=r"'age' of frame holds text: 1 of its 40 cells are no numbers, such as '\?'"
    ):
        ft.data.from_frame(rows, client="site", target="ill")
    with pytest.raises(ft.DataError, match=r"'age' of frame holds text\. Say"):
        ft.data.from_frame({**rows, "age": ["old", "young"] * 20}, client="site", target="ill")


def test_a_client_in_the_index_of_a_frame_is_answered_with_what_to_do() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"site": ["a", "b"], "age": [1, 2], "ill": [0, 1]}).set_index("site")
    with pytest.raises(ft.DataError, match=r"columns of frame. Got 'site', which is its index: give frame.reset_index"):
        ft.data.from_frame(frame, client="site", target="ill")
