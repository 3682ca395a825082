"""How values are shown: by their kind and the way asked for, without the core knowing who shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.support.display import html_of, show, shows


class Fruit:
    name = "apple"


class Pear(Fruit):
    name = "pear"


@shows(Fruit)
def _html(fruit: Fruit) -> str:
    return f"<b>{fruit.name}</b>"


@shows(Fruit, "line")
def _line(fruit: Fruit, ending: str) -> str:
    return fruit.name + ending


def test_a_value_is_shown_by_its_kind_and_the_way() -> None:
    assert html_of(Fruit()) == "<b>apple</b>"
    assert show(Fruit(), "line", "!") == "apple!"


def test_only_the_exact_kind_and_way_are_shown() -> None:
    for value, way in ((Pear(), "html"), (Fruit(), "page"), (3, "html")):
        with pytest.raises(KeyError):
            show(value, way)


def test_the_report_shows_what_the_core_holds(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    """`import fedtempo` alone registers every way that the core asks for."""
    result = ft.run(
        model=ft.models.softmax_regression(64, 10),
        data=digits,
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=1),
        rounds=1,
        evaluation=None,
    )
    for value in (result, result.history[0], digits, ft.schedules.per_round(0.1, 0.9)):
        assert "<" in value._repr_html_()
    assert result.report(tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert result.table().records()[0]["steps"] == [16.0]
