"""Losses of torch, for the targets that they are made for."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedtempo as ft
from fedtempo.tasks import as_task
from tests.plain_loop import Rows, averaged, random_clients, trained


def agree(clients: list[Rows], loss: object, plain: object, backend: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    ours = trained(model, clients, loss=loss, backend=backend)
    by_hand = averaged(model, clients, lambda module, rows: plain(module(rows["x"]), rows["y"]))  # type: ignore[operator]
    assert all(torch.allclose(ours[name], by_hand[name], rtol=0, atol=1e-12) for name in by_hand)


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("loss", [F.cross_entropy, nn.CrossEntropyLoss(label_smoothing=0.1)])
def test_cross_entropy_takes_a_share_of_every_class_as_in_torch(loss: object, backend: str) -> None:
    """They were taken for classes of their own, from 0 to 0."""
    clients = random_clients()
    for rows in clients:
        rows["y"] = 0.9 * F.one_hot(rows["y"], 3) + 0.1 * rows["x"][:, :3].softmax(1)
    agree(clients, loss, loss, backend)


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize(
    "loss",
    [
        F.binary_cross_entropy_with_logits,
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)),
        nn.MultiLabelSoftMarginLoss(),
    ],
)
def test_losses_of_labels_take_truth_values(loss: object, backend: str) -> None:
    """Labels are booleans here, and numbers in torch, which ended in an error of its own."""

    def plain(outputs: Tensor, targets: Tensor) -> Tensor:
        value: Tensor = loss(outputs, targets.double())  # type: ignore[operator]
        return value

    clients = random_clients()
    for rows in clients:
        rows["y"] = rows["x"][:, :3] > 0
    agree(clients, loss, plain, backend)


def test_a_loss_that_leaves_out_other_targets_than_the_metrics_is_refused() -> None:
    """Accuracy counted rows that the loss had skipped, such as the padding of sentences."""
    with pytest.raises(
        ft.ConfigError, match=r"ignore_index of the loss must be -100.* Got 0: write y\[y == 0\] = -100"
    ):
        as_task(nn.CrossEntropyLoss(ignore_index=0), torch.tensor([[1, 2, 0]]))
    assert as_task(nn.CrossEntropyLoss(ignore_index=-100), torch.tensor([1, 2])).classes
    shares = torch.tensor([[0.5, 0.5]])  # torch itself looks at no index where targets are shares
    assert as_task(nn.CrossEntropyLoss(ignore_index=0), shares).name == "CrossEntropyLoss"
