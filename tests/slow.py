"""Parameters of which some run every time and the others with `--slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(every_time: Iterable[Any], values: Iterable[Any], why: str) -> list[Any]:
    """All values as parameters; those not named in `every_time` are marked slow, with the reason."""
    chosen, everything = list(every_time), list(values)
    unknown = [value for value in chosen if value not in everything]
    assert not unknown, f"not among the values: {unknown}"
    mark = pytest.mark.slow(why)
    return [value if value in chosen else pytest.param(value, marks=mark) for value in everything]
