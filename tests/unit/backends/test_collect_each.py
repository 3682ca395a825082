"""Uploads looked at one by one: refused, bounded and remembered, on the federation of one weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.backends import BACKENDS, Backend, Block, Order, run_blocks
from fedtempo.objectives import Received
from fedtempo.server.sums import BlockSum, mean
from tests.one_weight import experiment

ROWS = ([4.0], [2.0], [-6.0])
"""Displacements 2, 1 and -3."""
both = pytest.mark.parametrize("backend", BACKENDS.values(), ids=list(BACKENDS))


def looked_at(backend: Backend, limit: float = float("inf"), **settings: Any) -> BlockSum:
    prepared = experiment(*ROWS, **settings)
    assert prepared.federation.scrutiny is not None
    received = Received({"w": torch.zeros(1, dtype=torch.float64)}, {})
    order = Order(received, prepared.federation.now(0, 1.0), limit)
    return run_blocks(prepared.federation, backend, order, [Block(np.arange(3), [])], BlockSum())


def displacement(result: BlockSum) -> float:
    return float(mean(result, (), torch.float64).means["delta"]["w"])


@both
def test_an_upload_beyond_the_limit_is_refused_and_the_others_count(backend: Backend) -> None:
    result = looked_at(backend, limit=2.5, admission=ft.Admission(max_norm=2.5))
    assert [(failure.client, failure.reason) for failure in result.failures] == [(2, "too large")]
    assert result.norms == pytest.approx([2.0, 1.0])
    assert displacement(result) == pytest.approx(1.5)
    assert result.loss.value / result.loss_weight == pytest.approx((16 + 4) / 2)


@both
def test_an_upload_at_the_limit_counts(backend: Backend) -> None:
    assert looked_at(backend, limit=3.0, admission=ft.Admission(max_norm=3.0)).clients == 3


@both
def test_a_bounded_mean_shortens_each_upload_first(backend: Backend) -> None:
    """2, 1 and -3 become 1.5, 1 and -1.5."""
    result = looked_at(backend, aggregator=ft.robust.norm_bounded(1.5))
    assert displacement(result) == pytest.approx(1.0 / 3)
    assert result.norms == pytest.approx([1.5, 1.0, 1.5])


@both
def test_every_upload_is_kept_where_the_aggregator_combines_them(backend: Backend) -> None:
    result = looked_at(backend, aggregator=ft.robust.median())
    assert [(weight, float(upload["w"])) for weight, upload in result.each] == [(1.0, 2.0), (1.0, 1.0), (1.0, -3.0)]
    assert not looked_at(backend, admission=ft.Admission(max_norm=9.0)).each


@both
@pytest.mark.parametrize(("kind", "reason"), [("nan", "not finite"), ("renamed", "wrong names")])
def test_injected_faults_are_refused_for_everybody(backend: Backend, kind: str, reason: str) -> None:
    result = looked_at(backend, faults=ft.Faults(**{kind: 1.0}))
    assert [failure.reason for failure in result.failures] == [reason] * 3
    assert (result.clients, result.sums) == (0, {})


def test_without_checks_everything_goes_through() -> None:
    result = looked_at(BACKENDS["serial"], faults=ft.Faults(huge=1.0), admission=ft.Admission(checks=False))
    assert not result.failures
    assert result.norms == pytest.approx([2e6, 1e6, 3e6])
