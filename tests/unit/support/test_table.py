"""One table in four renderings: what a reader sees is rounded, what a program reads has every digit."""

from __future__ import annotations

import csv
import io
import math

import pytest

from fedtempo.support.table import Ends, Number, ResultTable, TableColumn, mean_over_seeds, with_unit

TABLE = ResultTable(
    "accuracy",
    [
        TableColumn("after", "after", "existing"),
        TableColumn("gain", "over seeds"),
        TableColumn("p", "p"),
        TableColumn("why", "why", words=True, shown=False),
    ],
    [
        ("a_&|1", {"after": mean_over_seeds([0.61, 0.63], 0.0123, best=True), "gain": Ends(-0.1, 0.25)}),
        ("b", {"after": Number(math.nan), "p": Number(0.0004, "p"), "why": "50% more"}),
    ],
    notes=["a note"],
    spread="mean ± half",
)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (1234, "1.2k"), (12345678, "12M"), (2.5e9, "2.5G"), (3e18, "3000P")],
)
def test_large_numbers_have_a_unit(number: float, text: str) -> None:
    assert with_unit(number) == text


def test_a_terminal_shows_rounded_numbers_and_what_plus_minus_is() -> None:
    lines = [line.split() for line in TABLE.text().splitlines()]
    assert lines[0] == ["accuracy,", "mean", "±", "half"] and lines[-1] == ["a", "note"]
    assert lines[-3:-1] == [["a_&|1", ".620", "±.012", "-.100…+.250", "-"], ["b", "-", "-", "<0.001"]]


def test_markdown_and_latex_mark_the_best_and_see_no_commands() -> None:
    markdown, latex = TABLE.markdown(), TABLE.latex()
    assert r"| a_&\|1 | **0.620** ± 0.012 | -0.100…+0.250 | - |" in markdown
    assert "bold: what cannot be told from the best of a column. a note." in markdown
    assert r"a\_\&|1 & $\mathbf{0.620} \pm 0.012$ & $[-0.100, +0.250]$ & -- \\" in latex
    assert r"b & -- & -- & ${<}0.001$ \\" in latex
    assert r"50\% more" in TABLE.choose("why").latex()


def test_csv_and_records_have_every_digit() -> None:
    first, second = csv.DictReader(io.StringIO(TABLE.choose("after", "why").csv()))
    assert (float(first["after"]), float(first["after half"])) == (0.62, 0.0123)
    assert (second["contestant"], second["after"], second["why"]) == ("b", "", "50% more")
    assert TABLE.records()[0]["after"] == [0.61, 0.63]


def test_a_page_runs_nothing() -> None:
    page = ResultTable("<b>", [TableColumn("x", "<i>")], [("<script>", {"x": "<img>"})]).html()
    assert "<script>" not in page and "<img>" not in page and "<i>" not in page and "&lt;script&gt;" in page
