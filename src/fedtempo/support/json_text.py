"""JSON that every reader takes: the standard has neither NaN nor infinity, though Python's own writer puts them out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

JsonTable = dict[str, object]
"""A JSON object: names, each with a number, a text, a list or another object."""


def json_text(value: object, indent: int | None = None, default: Callable[[object], object] | None = None) -> str:
    """The value as JSON; numbers that are not finite are null.

    >>> json_text({"loss": float("nan"), "steps": (3, 4)})
    '{"loss": null, "steps": [3, 4]}'
    """
    return json.dumps(finite(value), indent=indent, default=default, allow_nan=False)


def finite(value: Any) -> Any:
    """The same value with None in the place of numbers that are not finite."""
    if isinstance(value, Mapping):
        return {_finite_name(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _finite_name(key: object) -> object:
    """A name in an object is text for every reader; a number that is not finite would be refused as a name."""
    return str(key) if isinstance(key, float) else key
