"""Tables: runs under one label are averaged over their seeds; numbers with units; names cannot run."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import pytest

from fedtempo.evaluation.protocol import Scores, UserScores
from fedtempo.federation.costs import Costs
from fedtempo.report.tables import ResultTable, with_unit
from fedtempo.support.terminal import Terminal


def users(*accuracies: float) -> UserScores:
    return UserScores(np.arange(len(accuracies)), np.ones(len(accuracies)), {"accuracy": np.array(accuracies)})


@dataclass
class Run:
    """What a row is made of."""

    scores: Scores | None
    costs: Costs


def run(*accuracies: float, steps: int = 10) -> Run:
    return Run(Scores("test", users(*accuracies), users(*(a + 0.1 for a in accuracies))), Costs(steps=steps))


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (1234, "1.2k"), (12345678, "12M"), (2.5e9, "2.5G"), (3e18, "3000P")],
)
def test_large_numbers_have_a_unit(number: float, text: str) -> None:
    assert with_unit(number) == text


def test_seeds_of_one_label_are_averaged() -> None:
    """Means 0.5 and 0.7 over users: 0.6; half of the interval is t(1) s / sqrt(2) = 12.706 * 0.1 = 1.271."""
    table = ResultTable([run(0.4, 0.6), run(0.6, 0.8), run(0.9, 0.9, steps=2000)], ["a", "a", "b"])
    first, second = table.rows
    (column, tuned) = (c for c in table.columns if c.endswith("/mean"))
    assert first.values[column] == pytest.approx([0.5, 0.7])
    assert first.text(column) == "0.600 ±1.271"
    assert first.text(tuned, spread=False) == "0.700"
    assert (second.text(column), second.text("steps")) == ("0.900", "2.0k")
    assert table.title == "accuracy on the test part"


def test_records_hold_a_list_over_seeds() -> None:
    records = ResultTable([run(0.5), run(0.7)], ["a", "a"]).records()
    assert [record["label"] for record in records] == ["a"]
    assert records[0]["steps"] == [10.0, 10.0]


def test_runs_without_scores_show_their_costs() -> None:
    table = ResultTable([Run(None, Costs(steps=3, bytes_up=2000, bytes_down=3000))], ["a"])
    assert (table.title, table.columns) == ("costs", ["bytes", "steps", "flops"])
    assert "5.0k" in str(table)


def test_the_text_fits_a_terminal_and_has_every_row() -> None:
    text = str(ResultTable([run(0.5), run(0.25)], ["fedavg", "feddecay"]))
    assert max(map(len, text.splitlines())) <= 110
    assert "fedavg" in text and ".500→.600" in text and ".250→.350" in text


def test_what_plus_minus_is_and_who_the_worst_are_is_said() -> None:
    """Two users have no decile: the column is the worse of the two. Ten have one."""
    few = ResultTable([run(0.5, 0.6), run(0.7, 0.8)], ["a", "a"])
    screen = io.StringIO()
    Terminal(file=screen, width=200, force_terminal=False).print(few.rich(200))
    assert "mean ± half of the 95 % interval over seeds" in screen.getvalue() and "worst of 2" in screen.getvalue()
    assert "bottom" in str(ResultTable([run(*[0.5] * 10)], ["a"])) and "bottom" not in str(few)


def test_names_cannot_run() -> None:
    page = ResultTable([run(0.5)], ["<script>alert(1)</script>"])._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_eighty_columns_hold_every_cost() -> None:
    scores = Scores("test", *(users(0.4, 0.6) for _ in range(4)))
    table = ResultTable([Run(scores, Costs(steps=3200, bytes_up=10**9))], ["feddecay(lr=0.1, beta=0.6, steps=10)"])
    screen = io.StringIO()
    Terminal(file=screen, width=80, force_terminal=False).print(table.rich(80))
    lines = screen.getvalue().splitlines()
    assert any(line.rstrip().endswith("FLOPs") for line in lines)
    assert max(map(len, lines)) <= 80
    assert "std" not in screen.getvalue() and "std" in str(table)
    screen = io.StringIO()
    Terminal(file=screen, width=60, force_terminal=False).print(table.rich(60))
    assert "feddecay" in screen.getvalue() and "costs are shown from 76 columns on" in screen.getvalue()
