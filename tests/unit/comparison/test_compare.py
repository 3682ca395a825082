"""`ft.compare` as its user sees it: the signature, and what is refused."""

from __future__ import annotations

import dataclasses
import inspect
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.comparison.compare import BUDGET, GIVEN_BY_COMPARE
from fedtempo.report import write_report
from fedtempo.study import Budget


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


def _own_rate(now: ft.schedules.Now, value: float) -> float:
    return value / (1 + now.round)


def _small(**changes: Any) -> ft.Result:
    clients = [([[float(i)], [2.0], [1.0], [0.5]], [0, 1, 1, 0]) for i in range(3)]
    settings: dict[str, Any] = {
        "model": partial(ft.models.softmax_regression, 1, 2),
        "data": ft.data.FederatedData.from_clients(clients),
        "algorithm": ft.algorithms.fedavg(0.1, steps=1),
        "rounds": 1,
    }
    return ft.run(**{**settings, **changes})


def _rates(value: float) -> ft.Algorithm:
    return ft.algorithms.fedavg(ft.schedules.as_schedule(partial(_own_rate, value=value)), steps=1)


def test_results_that_print_alike_are_no_seeds_of_one_another() -> None:
    results = [_small(algorithm=_rates(value), seed=seed) for value in (0.1, 0.9) for seed in (0, 1)]
    table = ft.compare(results)
    assert [len(record["steps"]) for record in table.records()] == [2, 2]
    assert len({label for label, _ in table.rows}) == 2
    batches = ft.compare([_small(batch_size=size) for size in (1, 4)])
    assert ["batching" in label for label, _ in batches.rows] == [True, True]


def test_seeds_that_nothing_but_the_seed_tells_apart_keep_their_plain_name() -> None:
    table = ft.compare([_small(seed=0), _small(seed=1)])
    assert [label for label, _ in table.rows] == ["fedavg(lr=0.1, steps=1)"]


def test_results_of_one_seed_that_no_label_tells_apart_need_labels(tmp_path: Path) -> None:
    other = ft.data.FederatedData.from_clients([([[3.0], [2.0]], [0, 1])] * 3)
    results = [_small(), _small(data=other)]
    with pytest.raises(ft.ConfigError, match=r"labels must be given: .* seed 0 .* differ in data"):
        ft.compare(results)
    with pytest.raises(ft.ConfigError, match=r"labels must be given"):
        write_report(results, tmp_path / "report.html")
    assert len(ft.compare(results, ["ours", "theirs"]).rows) == 2


def test_a_report_shows_results_that_print_alike_as_two(tmp_path: Path) -> None:
    results = [_small(algorithm=_rates(value)) for value in (0.1, 0.9)]
    page = write_report(results, tmp_path / "report.html").read_text()
    hashes = [label.rsplit(", ", 1)[-1] for label, _ in ft.compare(results).rows]
    assert len(set(hashes)) == 2
    assert all("(content)" in one and one in page for one in hashes)


def test_scores_of_two_metrics_are_not_put_under_one_title() -> None:
    results = [_small(metric=metric) for metric in ("accuracy", "brier")]
    with pytest.raises(ft.ConfigError, match=r"the metric must be the same in all results.*'accuracy'.*'brier'"):
        ft.compare(results, ["a", "b"])
