"""A comparison in terminals of any width: names and numbers are whole, columns without room are left out and named."""

from __future__ import annotations

import re

import pytest

import fedtempo as ft
from fedtempo.comparison import compare_runs
from fedtempo.comparison.comparison import Comparison
from fedtempo.comparison.tables import tables_of


@pytest.fixture(scope="module")
def compared() -> Comparison:
    digits = ft.data.load("digits").split(ft.data.iid(6), new_clients=2, seed=0)
    settings = {"data": digits, "rounds": 1, "backend": "serial"}
    runs = [
        ft.Run.of(ft.run(model=ft.models.softmax_regression(64, 10), algorithm=algorithm, seed=seed, **settings))
        for algorithm in (ft.algorithms.fedsgd(lr=0.1), ft.algorithms.fedavg(lr=0.1, steps=2))
        for seed in (0, 1)
    ]
    return compare_runs(runs, target=0.1)


def shown(comparison: Comparison, width: int) -> str:
    return "\n".join(table.text(width) for table in tables_of(comparison))


@pytest.mark.parametrize("width", [45, 60, 80, 200])
def test_no_name_and_no_number_is_cut(compared: Comparison, width: int) -> None:
    text = shown(compared, width)
    # An interval has its own dots between two numbers; one at the end of a word is where Rich has cut it.
    assert not re.search(r"…(?![+-])", text), text
    below = next(line for line in text.splitlines() if line.startswith("contestant"))
    headings = [word for word in below.split()[1:] if not word.isdigit()]  # "worst of 8" has another number for each
    assert headings[: len(headings) // 2] == headings[len(headings) // 2 :]  # the same of existing and of new users
    assert text.count("fedsgd") >= 3 and text.count("existing") >= 2


def test_what_is_left_out_is_said(compared: Comparison) -> None:
    assert "no room" not in shown(compared, 200)
    assert "no room here for: std" in shown(compared, 60)
