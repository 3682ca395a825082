"""The loss and the metrics are tried before training, and what does not fit is named."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedtempo as ft
from fedtempo.training.prepare import prepare
from tests.unit.training.test_experiment import experiment


@pytest.mark.parametrize("number", [1, 3, 5])
def test_class_weights_are_one_for_each_output(number: int) -> None:
    """One weight alone could be multiplied with any number of classes, and failed in the first round."""
    rule = rf"class_weights must be 4 numbers, one for each of the model's outputs\. Got {number}\."
    with pytest.raises(ft.ConfigError, match=rule):
        experiment(loss=ft.tasks.classification(class_weights=[1.0] * number))
    experiment(loss=ft.tasks.classification(class_weights=[1.0] * 4))


def _paired(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - targets) ** 2).mean()


def _by_row(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs.squeeze(1) - targets) ** 2).mean()


@pytest.mark.parametrize(("loss", "warned"), [(_paired, True), (_by_row, False)])
def test_a_loss_that_pairs_every_output_with_every_target_is_warned_of(
    loss: Callable[[Tensor, Tensor], Tensor], warned: bool
) -> None:
    """(n, 1) minus (n,) is n times n: such a loss trained towards the mean of all targets, without a word."""
    rng = np.random.default_rng(0)
    clients = [(rng.random((20, 3)), rng.random(20)) for _ in range(2)]
    data = ft.data.FederatedData.from_clients(clients)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        torch.manual_seed(0)
        prepare(model=nn.Linear(3, 1), data=data, algorithm=ft.algorithms.fedavg(lr=0.1, steps=1), rounds=1, loss=loss)
    assert any("not the mean over rows" in str(one.message) for one in heard) == warned
