"""What errors are made of: values on one short line, the nearest name, types by annotation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.errors import fits, is_number, require, shown, unknown

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
        (5, tuple[int, ...], False),
        ("ab", list[str], False),
        ({"a": 1}, dict[str, int], True),
        (object(), Any, True),
    ],
)
def test_values_fit_annotations(value: Any, kind: Any, expected: bool) -> None:
    assert fits(value, kind) is expected
