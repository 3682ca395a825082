"""The batteries for a metric and a loss: ours and honest ones pass, each kind of fault is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedtempo as ft
from fedtempo.contracts import ContractError

METRICS = ["accuracy", "auroc", "calibration_error", "perplexity", "r2", "mae", "recall_at_5"]


@pytest.mark.slow("test_metrics has their numbers on every backend; a metric of one's own runs every time below")
@pytest.mark.parametrize("name", METRICS)
def test_ours_keep_the_contract(name: str) -> None:
    ft.check_metric(name)


def error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(-1) - targets).abs()


def test_a_metric_of_ones_own_keeps_it() -> None:
    ft.check_metric(ft.Metric(error, higher_is_better=False), kind="numbers")


def test_the_wrong_direction_is_named() -> None:
    with pytest.raises(ContractError, match="higher numbers for right predictions"):
        ft.check_metric(ft.Metric(error, higher_is_better=True), kind="numbers")


def test_a_metric_that_remembers_is_named() -> None:
    calls = [0]

    def drifting(outputs: Tensor, targets: Tensor) -> float:
        calls[0] += 1
        return float((outputs.argmax(1) == targets).double().mean()) + 1e-3 * calls[0]

    with pytest.raises(ContractError, match="is the same"):
        ft.check_metric(ft.Metric(drifting, higher_is_better=True, per="client"), kind="classes")


def test_a_promise_to_be_vectorised_that_is_none_is_named() -> None:
    """It looks at all rows at once, so padding changes it: R squared of the issue."""

    def share(outputs: Tensor, targets: Tensor) -> Tensor:
        gaps = (outputs.squeeze(-1) - targets).square()
        return 1 - gaps / (targets - targets.mean()).square().mean()

    promised = ft.Metric(share, higher_is_better=True, vectorised=True)
    with pytest.raises(ContractError, match="is the same vectorised as serially"):
        ft.check_metric(promised, kind="numbers")
    ft.check_metric(ft.Metric(share, higher_is_better=True), kind="numbers")


IN_LAWS = pytest.mark.slow("laws/test_losses trains on torch's losses on every backend every time")


def one_number(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets) + outputs.std()


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        pytest.param(one_number, "classes", marks=pytest.mark.slow("a loss of coupled rows keeps it every time below")),
        pytest.param("multilabel", "labels", marks=IN_LAWS),
        pytest.param(
            *(nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1), "classes"), marks=IN_LAWS
        ),
        pytest.param(nn.MSELoss(), "numbers", marks=IN_LAWS),
    ],
)
def test_losses_keep_the_contract(loss: Any, kind: Any) -> None:
    ft.check_loss(loss, kind=kind)


def test_rows_that_are_not_apart_although_promised_are_named() -> None:
    def coupled(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = F.cross_entropy(outputs, targets, reduction="none")
        return losses * (1 + losses.mean())

    with pytest.raises(ContractError, match="trains the same model vectorised"):
        ft.check_loss(ft.tasks.Task("coupled", coupled, rows_apart=True))
    ft.check_loss(ft.tasks.Task("coupled", coupled))


def test_a_loss_that_draws_is_named() -> None:
    def noisy(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets) * float(torch.rand(()))

    with pytest.raises((ContractError, ft.FedTempoError)):
        ft.check_loss(noisy)
