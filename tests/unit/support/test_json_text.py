"""JSON without NaN and infinity."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from fedtempo.support.json_text import json_text


def refused(constant: str) -> float:
    raise AssertionError(f"{constant} is not JSON")


def test_what_is_not_finite_is_null_at_every_depth() -> None:
    value = {"a": math.nan, "b": [1.5, math.inf, {"c": (-math.inf, np.float64("nan"), 2)}], "d": None, "e": "NaN"}
    expected = {"a": None, "b": [1.5, None, {"c": [None, None, 2]}], "d": None, "e": "NaN"}
    assert json.loads(json_text(value), parse_constant=refused) == expected


def test_what_is_finite_keeps_every_bit() -> None:
    value = {"third": 1 / 3, "least": 5e-324, "whole": 2**70, "yes": True, "0.5": [], "1": {}}
    assert json.loads(json_text(value)) == value
    assert json_text(value, indent=1) == json.dumps(value, indent=1)


def test_other_values_are_written_as_the_caller_says() -> None:
    assert json_text([Path("a")], default=str) == '["a"]'


def test_a_name_that_is_not_finite_is_text() -> None:
    assert json.loads(json_text({math.inf: 1, 0.5: 2}), parse_constant=refused) == {"inf": 1, "0.5": 2}
