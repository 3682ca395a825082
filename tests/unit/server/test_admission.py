"""Who may take part in a round, and which uploads count."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import fedtempo as ft
from fedtempo.contracts import small_data
from fedtempo.server.admission import Inbox, refusal

SHAPE = {"delta": {"w": (torch.Size([2, 3]), torch.float32), "b": (torch.Size([3]), torch.float32)}}


def upload(**changes: Any) -> dict[str, dict[str, torch.Tensor]]:
    return {"delta": {"w": torch.ones(2, 3), "b": torch.zeros(3), **changes}}


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "NaN": (upload(b=torch.tensor([0.0, math.nan, 0.0])), 1.0, "not finite"),
    "infinity": (upload(w=torch.full((2, 3), math.inf)), 1.0, "not finite"),
    "minus infinity": (upload(w=torch.full((2, 3), -math.inf)), 1.0, "not finite"),
    "would broadcast": (upload(b=torch.zeros(1)), 1.0, "wrong shape"),
    "transposed": (upload(w=torch.ones(3, 2)), 1.0, "wrong shape"),
    "scalar": (upload(b=torch.tensor(0.0)), 1.0, "wrong shape"),
    "double": (upload(b=torch.zeros(3, dtype=torch.float64)), 1.0, "wrong type"),
    "integer": (upload(b=torch.zeros(3, dtype=torch.int64)), 1.0, "wrong type"),
    "missing": ({"delta": {"w": torch.ones(2, 3)}}, 1.0, "wrong names"),
    "extra": (upload(c=torch.zeros(1)), 1.0, "wrong names"),
    "renamed": ({"delta": {"w": torch.ones(2, 3), "B": torch.zeros(3)}}, 1.0, "wrong names"),
    "another group": ({**upload(), "more": {}}, 1.0, "wrong names"),
    "empty": ({}, 1.0, "wrong names"),
    "negative weight": (upload(), -1.0, "wrong weight"),
    "NaN weight": (upload(), math.nan, "wrong weight"),
    "infinite weight": (upload(), math.inf, "wrong weight"),
    "huge weight": (upload(), 1e30, "wrong weight"),
    "bool weight": (upload(), True, "wrong weight"),
    "too large": (upload(w=torch.full((2, 3), 1e6)), 1.0, "too large"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    groups, weight, reason = REFUSED[name]
    assert refusal(groups, weight, SHAPE, limit=100.0) == reason


def test_a_good_upload_counts() -> None:
    assert refusal(upload(), 3.0, SHAPE, limit=100.0) is None
    assert refusal(upload(), 3, SHAPE) is None


def test_every_client_has_one_turn() -> None:
    inbox = Inbox(round=4, cohort={1, 2, 3})
    assert inbox.refusal(2, 4) is None
    assert inbox.refusal(2, 4) == "sent twice"
    assert inbox.refusal(9, 4) == "unknown client"
    assert inbox.refusal(3, 3) == "another round"
    assert inbox.refusal(3, 4) is None


def test_the_limit_is_the_smaller_of_both() -> None:
    assert ft.Admission(max_norm=5.0, max_ratio=3.0).limit(1.0) == 3.0
    assert ft.Admission(max_norm=5.0, max_ratio=3.0).limit(math.nan) == 5.0
    assert ft.Admission().limit(2.0) == math.inf


def test_a_client_that_had_no_time_for_shared_tensors_counts_nothing_and_is_not_refused() -> None:
    """`weighting="processed"` counts rows that moved shared tensors. A deadline may end a client before the first."""
    assert refusal(upload(), 0.0, SHAPE) is None
    settings = {"model": ft.models.mlp(6, [5], 4), "data": small_data(), "rounds": 2, "cohort": 4, "batch_size": 4}
    settings |= {"algorithm": ft.algorithms.fedrep(0.1, 3, 3, weighting="processed"), "progress": False}
    settings |= {"devices": ft.devices.constant(seconds_per_step=1.0), "deadline": 2.5, "partial_work": True}
    plain, checked = ft.run(**settings), ft.run(**settings, admission=ft.Admission(max_norm=1e9))
    assert checked.digest() == plain.digest()
    assert [report.failures for report in checked.history] == [report.failures for report in plain.history]
