"""The loss and the metrics are tried before training, and what does not fit is named."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
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
    return ((torch.tanh(outputs) - targets) ** 2).mean()


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


NUMBERS = ft.data.FederatedData.from_clients([([[0.0], [1.0], [2.0]], [0.5, 1.5, 2.5])] * 2)
SETTINGS = {"model": nn.Linear(1, 1), "data": NUMBERS, "cohort": 2}


@pytest.mark.parametrize("loss", [nn.L1Loss(), F.huber_loss, lambda o, y: ((o - y) ** 2).mean()])
def test_a_loss_of_every_row_with_every_target_is_refused(loss: object) -> None:
    """Torch makes three by three numbers of outputs (3, 1) and targets (3)."""
    with pytest.raises(ft.ModelError, match=r"outputs.squeeze\(-1\)\. Got shapes \(3, 1\) and \(3,\)"):
        experiment(**SETTINGS, loss=loss)
    metric = ft.Metric(loss, higher_is_better=False, per="client", name="error")  # type: ignore[arg-type]
    with pytest.raises(ft.ModelError, match="metric 'error' must compare each row with its own target"):
        experiment(**SETTINGS, metric=metric)


@pytest.mark.parametrize(
    "loss",
    [
        nn.MSELoss(),  # ours, which knows the shapes
        lambda o, y: (o.squeeze(-1) - y).abs(),
        lambda o, y: (o - y[:, None]).abs().mean(),
    ],
)
def test_losses_of_a_row_and_its_target_are_taken(loss: object) -> None:
    experiment(**SETTINGS, loss=loss)


class Annealed:
    """A loss that grows with the number of its calls, which all clients share and a recorded step leaves out."""

    calls = 0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return F.cross_entropy(outputs, targets) * self.calls


class Counts(nn.Module):
    """A loss that only counts so far, and would act on it later."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.seen += len(targets)
        return F.cross_entropy(outputs, targets)


class Tempered(nn.Module):
    def __init__(self, trained: bool) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()), requires_grad=trained)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs / self.temperature, targets)


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (Annealed(), "targets, always. Got .* and then"),
        (Counts(), "Got a state that a call changes"),
        (lambda o, y: F.cross_entropy(o.mul_(2), y), "leave outputs and targets as they are.*Got a write"),
        (lambda o, y: F.cross_entropy(o, y.clamp_(max=1)), "leave outputs and targets as they are.*Got a write"),
        (Tempered(True), "without parameters to train.*Got 'temperature'"),
    ],
)
def test_a_loss_that_remembers_or_would_be_trained_is_refused(loss: object, found: str) -> None:
    with pytest.raises((ft.ModelError, ft.ConfigError), match=found):
        experiment(loss=loss)


def test_a_loss_with_frozen_parameters_is_taken_and_a_metric_that_draws_is_not() -> None:
    experiment(loss=Tempered(False))
    drawing = ft.Metric(lambda o, y: float(torch.rand(())), higher_is_better=True, per="client", name="drawn")
    with pytest.raises(ft.ConfigError, match="metric 'drawn' must be the same for the same outputs and targets"):
        experiment(metric=drawing, evaluation=ft.Evaluation())


@pytest.mark.parametrize(
    ("loss", "fits"),
    [
        (lambda o, y: F.cross_entropy(o, y, reduction="sum"), False),
        (lambda o, y: F.cross_entropy(o, y) + (o @ o.T).mean(), False),
        (nn.MultiMarginLoss(), True),
        (lambda o, y: F.cross_entropy(o, y, reduction="none"), True),
    ],
)
def test_a_batch_passes_in_pieces_only_where_their_mean_is_its_loss(loss: object, fits: bool) -> None:
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=1, accumulate=2)
    if fits:
        experiment(loss=loss, algorithm=algorithm)
    else:
        with pytest.raises(ft.ConfigError, match=r"accumulate must be 1 for the loss .* Got 2\."):
            experiment(loss=loss, algorithm=algorithm)
