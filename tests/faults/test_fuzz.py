"""Every parser of foreign bytes, with bytes that Hypothesis makes; `python -m tests.fuzz` goes on for longer."""

from __future__ import annotations

import pytest

from tests.later import Later

hypothesis = Later("hypothesis")
NAMES = (
    *("experiment file", "run database", "run summary", "run experiment", "run count", "saved result", "tensors"),
    *("message", "npz", "node folder", "idx", "idx inside", "leaf", "csv"),
)


@pytest.mark.slow("hundreds of examples for each parser")
@pytest.mark.parametrize("name", NAMES)
def test_foreign_bytes_end_in_a_value_or_in_one_line(name: str) -> None:
    assert hypothesis.given
    from tests import fuzz

    assert set(fuzz.TARGETS) == set(NAMES)
    fuzz.check(name, 60)
