"""What blocks of clients add up to, on the federation of one weight: sums, weights, refusals, what is kept."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.backends import BACKENDS, Backend, Block, Order, run_blocks, serial
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.params import Params
from fedtempo.server.sums import BlockSum, mean
from fedtempo.training.experiment import Experiment
from tests.one_weight import HALFWAY, experiment

ROWS = ([4.0], [1.0, 3.0], [-6.0, -6.0, -6.0])
"""From w = 0 a step leads halfway to the means 4, 2 and -6: displacements 2, 1 and -3."""
both = pytest.mark.parametrize("backend", BACKENDS.values(), ids=list(BACKENDS))


def added(
    prepared: Experiment,
    backend: Backend,
    blocks: list[list[int]],
    kept: dict[int, Params] | None = None,
    limit: float = math.inf,
) -> BlockSum:
    chosen = [Block(np.array(block), [kept[client] for client in block] if kept else []) for block in blocks]
    received = Received({"w": torch.zeros(1, dtype=torch.float64)}, {})
    order = Order(received, prepared.federation.problem.now(0, 1.0), limit)
    return run_blocks(prepared.federation, backend, order, chosen, BlockSum())


def fedavg(weighting: Any, **settings: Any) -> ft.Algorithm:
    return ft.algorithms.fedavg(lr=HALFWAY, **{"steps": 1, **settings}, weighting=weighting)


@both
@pytest.mark.parametrize(
    ("weighting", "weight", "expected"),
    [
        ("uniform", 3.0, (2 + 1 - 3) / 3),
        ("samples", 6.0, (1 * 2 + 2 * 1 - 3 * 3) / 6),
        ("processed", 6.0, (1 * 2 + 2 * 1 - 3 * 3) / 6),  # one full batch processes every row once
    ],
)
def test_the_mean_of_three_clients_by_hand(backend: Backend, weighting: str, weight: float, expected: float) -> None:
    prepared = experiment(*ROWS, algorithm=fedavg(weighting))
    result = added(prepared, backend, [[0, 1, 2]])
    aggregate = mean(result, (), torch.float64)
    assert (aggregate.weight, aggregate.clients) == (weight, 3)
    assert float(aggregate.means["delta"]["w"]) == pytest.approx(expected, abs=1e-12)


@both
def test_processed_samples_count_steps_times_rows(backend: Backend) -> None:
    """Two steps on the full batch process 2, 4 and 6 rows; displacements are 3/4 of the way: 3, 1.5 and -4.5."""
    prepared = experiment(*ROWS, algorithm=fedavg("processed", steps=2))
    aggregate = mean(added(prepared, backend, [[0, 1, 2]]), (), torch.float64)
    assert aggregate.weight == 12.0
    assert float(aggregate.means["delta"]["w"]) == pytest.approx((2 * 3 + 4 * 1.5 - 6 * 4.5) / 12)


@both
@pytest.mark.parametrize("blocks", [[[0], [1], [2]], [[2], [0, 1]], [[1, 2], [0]]])
def test_any_blocks_add_up_to_the_same_bits(backend: Backend, blocks: list[list[int]]) -> None:
    prepared = experiment(*ROWS, algorithm=fedavg("samples"))
    whole = added(prepared, backend, [[0, 1, 2]])
    again = added(prepared, backend, blocks)
    assert torch.equal(again.sums["delta"]["w"].value, whole.sums["delta"]["w"].value)
    assert (again.loss.value, again.loss_weight, again.weight) == (whole.loss.value, whole.loss_weight, whole.weight)


@both
def test_the_loss_is_weighted_like_the_uploads(backend: Backend) -> None:
    """Losses at w = 0: 16, (1 + 9) / 2 and 36, of clients with 1, 2 and 3 rows."""
    result = added(experiment(*ROWS, algorithm=fedavg("samples")), backend, [[0, 1, 2]])
    assert result.loss.value / result.loss_weight == pytest.approx((16 + 2 * 5 + 3 * 36) / 6)


@both
def test_a_client_that_diverges_leaves_its_name_and_nothing_else(backend: Backend) -> None:
    """The gradient of (0 - 1e308)^2 is beyond the largest float64."""
    rows, algorithm = ([4.0], [1e308], [-6.0]), fedavg("samples")
    whole = added(experiment(*rows, algorithm=algorithm), backend, [[0, 1, 2]])
    assert {failure.client for failure in whole.failures} == {1}
    assert {failure.reason for failure in whole.failures} == {"not finite"}
    assert (whole.clients, whole.weight) == (2, 2.0)
    without = added(experiment(*rows, algorithm=algorithm), backend, [[0, 2]])
    assert torch.equal(whole.sums["delta"]["w"].value, without.sums["delta"]["w"].value)


@both
@pytest.mark.parametrize("blocks", [[[0, 1]], [[0], [1]]])
def test_finite_numbers_whose_sum_overflows_are_refused(backend: Backend, blocks: list[list[int]]) -> None:
    """Each client's displacements of 1.6e308 are finite, and their sum over clients is not."""

    def upload(received: Received, carry: Carry) -> dict[str, Params]:
        return {"delta": {"w": carry.shared["w"].repeat(2) * 0 + 1.6e308}}

    algorithm = replace(fedavg("uniform"), uploads=ft.Uploads(upload))
    prepared = experiment([0.0], [0.0], algorithm=algorithm)
    result = added(prepared, backend, blocks)
    assert result.clients == 0
    assert sorted(result.failures) == [(0, "too large to add"), (1, "too large to add")]


@both
def test_personal_state_is_kept_by_client_and_never_sent(backend: Backend) -> None:
    """Ditto's personal models, pulled to nobody: from where each was, halfway to its own mean."""
    algorithm = ft.algorithms.ditto(lr=HALFWAY, steps=1, lam=0.0, personal_steps=1)
    kept = {client: {"w": torch.tensor([float(client)], dtype=torch.float64)} for client in range(3)}
    result = added(experiment(*ROWS, algorithm=algorithm), backend, [[0, 1, 2]], kept)
    assert {c: float(own["w"]) for c, own in result.personal.items()} == pytest.approx({0: 2.0, 1: 1.5, 2: -2.0})
    assert set(result.sums) == {"delta"}
    assert float(mean(result, (), torch.float64).means["delta"]["w"]) == pytest.approx(0.0, abs=1e-12)


def test_nobody_adds_nothing() -> None:
    result = added(experiment(*ROWS), serial, [])
    assert (result.sums, result.weight, result.clients) == ({}, 0.0, 0)


def looked_at(backend: Backend, limit: float = math.inf, **settings: Any) -> BlockSum:
    """The three uploads, each looked at on its own."""
    prepared = experiment(*ROWS, **settings)
    assert prepared.federation.policy is not None
    return added(prepared, backend, [[0, 1, 2]], limit=limit)


def displacement(result: BlockSum) -> float:
    return float(mean(result, (), torch.float64).means["delta"]["w"])


@both
def test_an_upload_beyond_the_limit_is_refused_and_the_others_count(backend: Backend) -> None:
    result = looked_at(backend, limit=2.5, admission=ft.Admission(max_norm=2.5))
    assert [(failure.client, failure.reason) for failure in result.failures] == [(2, "too large")]
    assert result.norms == pytest.approx([2.0, 1.0])
    assert displacement(result) == pytest.approx(1.5)
    assert result.loss.value / result.loss_weight == pytest.approx((16 + 5) / 2)


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
