"""Who may take part in a round, and which uploads count."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.contracts import small_data
from fedtempo.server.admission import Inbox, refusal, refused_scores
from fedtempo.server.sums import BlockSum, addable
from fedtempo.training.loop import drained, train_experiment
from tests import one_weight

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
    "squares overflow": (upload(w=torch.full((2, 3), 3e38)), 1.0, "too large to add"),
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


def test_a_number_that_would_make_the_model_infinite_costs_its_sender_only() -> None:
    """A finite 2.4e38 of one client: twice in a sum, or squared, it is infinite in float32."""
    rows = [[1.0], [2.0], [1.2e38]]
    settings = {"algorithm": ft.algorithms.fedavg(lr=1.0, steps=1), "dtype": torch.float32, "rounds": 3}

    def trained(**more: Any) -> ft.Result:
        return drained(train_experiment(one_weight.experiment(*rows, **settings, **more)))

    for more in ({}, {"admission": ft.Admission(max_norm=1e30)}, {"backend": "vectorised"}):
        result = trained(**more)
        assert [report.failures for report in result.history] == [((2, "too large to add"),)] * 3
        assert result.digest() == trained(cohorts=[[0, 1]] * 3).digest()
    unchecked = trained(admission=ft.Admission(checks=False))
    assert abs(unchecked.params["w"].item()) > 1e36


def test_a_loss_that_would_make_the_sum_infinite_is_left_out() -> None:
    block = BlockSum()
    block.add_clients(np.array([1e15, 1.0]), np.array([1e307, 2.0]), {"steps": np.array([1e307, 3.0])})
    assert (block.mean_loss, block.measurements["steps"].value) == (2.0, 3.0)
    assert block.measurements["losses_left_out"].value == 1.0


def test_large_finite_float64_numbers_are_added() -> None:
    assert addable([torch.tensor([1e100], dtype=torch.float64)])[0]
    assert not addable([torch.tensor([1e200], dtype=torch.float64)])[0]
    assert addable([torch.tensor([60000.0], dtype=torch.float16), torch.tensor([7])])[0]
    assert addable([torch.tensor([[1.0, 2.0], [math.nan, 2.0], [3e38, 1.0]])], lanes=3).tolist() == [True, False, False]


SHARE, OPEN = (0.0, 1.0), (0.0, math.inf)


def test_scores_outside_their_bounds_are_refused() -> None:
    scores = {0: np.array([[0.5, 2.0]]), 1: np.array([[1.5, 2.0]]), 2: np.array([[math.nan, 1e300]])}
    assert refused_scores(scores, [SHARE, OPEN], ft.Admission()) == {
        1: "score 1.5 outside [0, 1]",
        2: "score 1e+300 outside [0, inf]",
    }
    assert refused_scores(scores, [SHARE, OPEN], ft.Admission(checks=False)) == {}


def test_scores_without_bounds_have_the_rule_of_uploads() -> None:
    scores = {client: np.array([[float(client + 1)]]) for client in range(5)} | {9: np.array([[1e6]])}
    assert refused_scores(scores, [OPEN], ft.Admission()) == {}
    assert list(refused_scores(scores, [OPEN], ft.Admission(max_ratio=10.0))) == [9]


@pytest.mark.parametrize("name", ft.metrics.METRICS)
def test_honest_scores_are_within_the_bounds_of_their_metric(name: str) -> None:
    metric = ft.metrics.METRICS[name]
    least, most = metric.bounds
    assert (least, most) != (-math.inf, math.inf)
    classes, labels = torch.randn(40, 12), torch.rand(40, 12) < 0.3
    cases = [(classes, torch.arange(40) % 12), (torch.randn(40, 2), torch.arange(40) % 2), (classes, labels)]
    cases = [(torch.randn(40), torch.randn(40))] if name in ("mae", "rmse", "r2") else cases
    fitting = [pair for pair in cases if metric.fits is None or not metric.fits(pair[0].shape, pair[1].shape)]
    assert fitting
    for outputs, targets in fitting:
        assert least <= metric.of_client(outputs, targets) <= most
