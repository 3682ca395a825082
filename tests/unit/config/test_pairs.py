"""KEY=VALUE pairs: where they go, and what they may not be."""

from __future__ import annotations

import pytest

import fedtempo as ft
from fedtempo.config.pairs import put


def test_a_field_of_thousands_of_parts_is_refused() -> None:
    """It became as many tables within tables, and the experiment's checks ended in a RecursionError."""
    with pytest.raises(ft.ConfigError, match=r"a field of --set must be of at most 20 parts\. Got 5001\."):
        put({}, ".".join(["a"] * 5001), 1, "--set")
