"""`ft.compare` as its user sees it: the signature, and what is refused."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

import fedtempo as ft
from fedtempo.comparison.compare import BUDGET, GIVEN_BY_COMPARE
from fedtempo.comparison.fair import Budget


def test_help_shows_every_setting_with_its_default() -> None:
    shown = inspect.signature(ft.compare).parameters
    assert not [name for name, parameter in shown.items() if parameter.kind is parameter.VAR_KEYWORD]
    of_run = inspect.signature(ft.run).parameters
    assert set(shown) >= set(of_run) - set(GIVEN_BY_COMPARE)
    assert shown["rounds"].default is inspect.Parameter.empty
    assert shown["cohort"].default == of_run["cohort"].default


def test_the_budget_that_help_shows_is_the_one_that_is_used() -> None:
    shown = inspect.signature(ft.compare).parameters
    used = {field.name: field.default for field in dataclasses.fields(Budget)}
    assert {name: shown[name].default for name in BUDGET} == used


def test_a_setting_that_the_comparison_makes_is_refused() -> None:
    with pytest.raises(ft.ConfigError, match=r"seed must be left out"):
        ft.compare({"a": ft.algorithms.fedavg(0.1, steps=1)}, seed=3)


def test_a_misspelt_setting_is_answered_with_the_right_one() -> None:
    known = {"model": None, "data": None, "rounds": 1}
    for wrong, right in (("refrence", "reference"), ("trails", "trials"), ("chohort", "cohort")):
        with pytest.raises(ft.ConfigError, match=f"{wrong}.*{right}"):
            ft.compare({"a": ft.algorithms.fedavg(0.1, steps=1)}, **known, **{wrong: 1})


def test_what_is_no_list_of_results_is_refused() -> None:
    data = ft.data.FederatedData.from_clients([([[1.0], [2.0]], [0, 1])] * 2)
    result = ft.run(
        model=ft.models.softmax_regression(1, 2), data=data, algorithm=ft.algorithms.fedavg(0.1, steps=1), rounds=1
    )
    for wrong in ([], [result, 3], 3, "results"):
        with pytest.raises(ft.ConfigError, match=r"contestants must be one or more results"):
            ft.compare(wrong)
    for labels in (["a", "b"], [], "a"):
        with pytest.raises(ft.ConfigError, match=r"labels must be 1 names, one for each result"):
            ft.compare([result], labels)
    assert "a" in str(ft.compare([result], ["a"]))
