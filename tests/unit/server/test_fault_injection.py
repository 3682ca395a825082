"""Injected faults are caught."""

from __future__ import annotations

import pytest

from fedtempo.server.admission import refusal
from fedtempo.server.fault_injection import corrupted
from tests.unit.server.test_admission import SHAPE, upload


@pytest.mark.parametrize("kind", ["nan", "infinite", "huge", "misshapen", "renamed"])
def test_every_injected_fault_is_caught(kind: str) -> None:
    assert refusal(corrupted(upload(), kind, 0.0), 1.0, SHAPE, limit=100.0) is not None
