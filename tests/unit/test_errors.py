"""What errors are made of: values on one short line, the nearest name, types by annotation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.contracts import small_data
from fedtempo.errors import ConfigError, fits, is_count, is_number, python_numbers, require, shown, unknown
from fedtempo.schedules import per_round

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("value", [10**400, NAN, INF, True, "1", None, [1]])
def test_what_is_not_a_number(value: Any) -> None:
    assert not is_number(value)


def test_a_value_is_shown_on_one_short_line() -> None:
    assert "\n" not in shown(np.zeros((50, 50)))
    assert len(shown("x" * 10_000)) < 300
    assert shown(10**5000) == "a very long int"
    with pytest.raises(ft.ConfigError, match="a very long int"):
        require(False, "rounds", "an int", 10**5000)


def test_the_nearest_name() -> None:
    assert str(unknown("model", "mlpp", ["mlp", "cnn"])) == "model 'mlpp' is not known. Did you mean 'mlp'?"
    assert str(unknown("model", None, ["mlp", "cnn"])) == "model None is not known. Known: cnn, mlp."


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1, float, True),
        (True, float, False),
        (True, int, False),
        (1.0, int, False),
        (None, int | None, True),
        ((1, 2), list[int], True),
        ([1, 2, 3], tuple[int, int, int], True),
        ([1, 2], tuple[int, int, int], False),
        ([1, 2], tuple[int, ...], True),
        ([["start", 3]], list[tuple[str, int]], True),
        ([[3, "start"]], list[tuple[str, int]], False),
        (5, tuple[int, ...], False),
        ("ab", list[str], False),
        ({"a": 1}, dict[str, int], True),
        (object(), Any, True),
    ],
)
def test_values_fit_annotations(value: Any, kind: Any, expected: bool) -> None:
    assert fits(value, kind) is expected


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint16])
def test_numpys_numbers_are_numbers(kind: type) -> None:
    assert is_number(kind(1))
    assert fits(kind(1), float)
    assert is_count(kind(1)) is fits(kind(1), int) is issubclass(kind, np.integer)


def test_what_is_no_number_stays_none() -> None:
    for value in (np.bool_(True), True, np.float32("nan"), np.float64("inf"), "1", None, np.array([1.0])):
        assert not is_number(value)
        assert not is_count(value)
    assert fits(np.bool_(True), bool)


def test_a_run_with_numpys_numbers_is_the_run_with_pythons() -> None:
    def result(integer, real) -> ft.Result:  # type: ignore[no-untyped-def]
        algorithm = ft.algorithms.fednar(
            ft.algorithms.fedavg(per_round(real(0.5), real(0.25)), integer(2), optimizer=ft.optimizers.sgd(real(0.5))),
            weight_decay=real(0.125),
            max_norm=real(2),
        )
        return ft.run(
            model=ft.models.mlp(integer(6), [integer(5)], integer(4)),
            data=small_data(),
            algorithm=algorithm,
            rounds=integer(2),
            cohort=real(0.5),
            batch_size=integer(4),
            seed=integer(3),
            dtype=torch.float64,
            evaluation=ft.Evaluation(every=integer(1), steps=integer(1), lr=real(0.25)),
        )

    plain = result(int, float)
    for integer, real in ((np.int64, np.float64), (np.int32, np.float32)):
        other = result(integer, real)
        assert repr(other.experiment.federation.algorithm) == repr(plain.experiment.federation.algorithm)
        assert other.digest() == plain.digest()
        assert other.experiment.identity() == plain.experiment.identity()


def test_a_number_of_numpy_times_a_schedule_is_a_schedule() -> None:
    assert repr(np.float64(2.0) * per_round(0.5, 0.5)) == repr(2.0 * per_round(0.5, 0.5))
    assert repr(per_round(np.float32(0.5), np.float64(0.5))) == "per_round(value=0.5, factor=0.5)"


def test_a_schedule_and_a_table_keep_their_form() -> None:
    assert python_numbers((np.int8(1), {"a": [np.float32(0.5)]})) == (1, {"a": [0.5]})
    assert type(python_numbers(np.int64(3))) is int


def test_wrong_numbers_of_numpy_are_refused_like_pythons() -> None:
    with pytest.raises(ConfigError, match="lr must be a number >= 0"):
        ft.algorithms.fedavg(np.float32(-1.0), 1)
    with pytest.raises(ConfigError, match="steps must be"):
        ft.algorithms.fedavg(0.1, np.int64(0))
