"""Which runs are seeds of one contestant."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import fedtempo as ft
from fedtempo.comparison import compare_runs
from fedtempo.contracts import small_data
from fedtempo.training.prepare import prepare
from tests import zoo
from tests.slow import slow_but


def rate(value: float) -> Callable[[ft.schedules.Now], float]:
    return lambda now: value


def run(value: float, seed: int, label: str | None = None) -> ft.Run:
    algorithm = ft.algorithms.fedavg(lr=rate(value), steps=1)
    settings = {"model": lambda: ft.models.mlp(6, [4], 4), "data": small_data(), "rounds": 1, "progress": False}
    return ft.Run.of(ft.run(algorithm=algorithm, seed=seed, **settings), label)  # type: ignore[arg-type]


def test_functions_that_look_alike_and_compute_other_numbers_are_two_contestants() -> None:
    """Two rates of an own schedule at seeds 0 and 1 were taken for two seeds of one algorithm, and averaged."""
    comparison = compare_runs([run(0.1, 0), run(0.5, 1), run(0.1, 1), run(0.5, 0)])
    assert [line.seeds for line in comparison.lines] == [[0, 1], [0, 1]]
    labels = [line.label for line in comparison.lines]
    assert labels[0] != labels[1] and all(", algorithm.phases (content) " in label for label in labels)


def test_seeds_of_an_own_schedule_are_one_contestant() -> None:
    comparison = compare_runs([run(0.1, 0), run(0.1, 1)])
    assert [line.seeds for line in comparison.lines] == [[0, 1]]
    assert "content" not in comparison.lines[0].label


def test_one_label_for_two_algorithms_is_refused() -> None:
    with pytest.raises(ft.ConfigError, match=r"algorithm.phases \(content\) must be the same"):
        compare_runs([run(0.1, 0, "mine"), run(0.5, 1, "mine")])


@pytest.mark.parametrize(
    "name", slow_but(zoo.MECHANISMS, sorted(zoo.ALGORITHMS), "one of each mechanism runs every time")
)
def test_the_code_of_an_algorithm_does_not_depend_on_the_seed(name: str) -> None:
    """Otherwise every seed would be a contestant of its own."""
    settings = {"data": small_data(), "algorithm": zoo.ALGORITHMS[name], "rounds": 2, "backend": "serial"}
    ones, others = (
        prepare(model=lambda: ft.models.mlp(6, [4], 4), seed=seed, **settings).identity(strict=False)  # type: ignore[arg-type]
        for seed in (0, 1)
    )
    codes = [field for field in ones if field.startswith("algorithm.") or field == "cohort (content)"]
    assert len(codes) > 5 and [ones[field] for field in codes] == [others[field] for field in codes]
