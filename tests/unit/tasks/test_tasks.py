"""Tasks: losses and scores by hand, rows and outputs that only pad, and the task that fits the targets."""

from __future__ import annotations

import math

import pytest
import torch
from torch.func import vmap

import fedtempo as ft
from fedtempo.tasks import IGNORED, TASKS, as_task, hide_padded_outputs, mean_loss

LOGITS = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0], [0.0, math.log(9.0)]], dtype=torch.float64)
"""Probabilities (3/4, 1/4), (1/2, 1/2) and (1/10, 9/10)."""
TARGETS = torch.tensor([0, 1, 0])
LOSSES = [math.log(4 / 3), math.log(2.0), math.log(10.0)]


def test_cross_entropy_by_hand() -> None:
    task = TASKS["classification"]
    assert task.losses(LOGITS, TARGETS).tolist() == pytest.approx(LOSSES)
    assert float(mean_loss(task, LOGITS, {"y": TARGETS})) == pytest.approx(sum(LOSSES) / 3)
    assert task.scores["accuracy"](LOGITS, TARGETS).tolist() == [1.0, 0.0, 0.0]
    assert task.scores["top5"](LOGITS, TARGETS).tolist() == [1.0, 1.0, 1.0]


def test_clients_side_by_side_have_the_loss_of_each() -> None:
    """Under vmap cross-entropy is put together from its parts; the numbers and gradients are torch's."""
    task, lanes = TASKS["classification"], torch.stack([LOGITS, -2 * LOGITS])
    targets = torch.stack([TARGETS, torch.tensor([1, IGNORED, 0])])
    gradients, losses = vmap(torch.func.grad_and_value(lambda x, y: mean_loss(task, x, {"y": y})))(lanes, targets)
    for lane in range(2):
        leaf = lanes[lane].clone().requires_grad_()
        expected = torch.nn.functional.cross_entropy(leaf, targets[lane])
        (gradient,) = torch.autograd.grad(expected, leaf)
        torch.testing.assert_close(losses[lane], expected.detach())
        torch.testing.assert_close(gradients[lane], gradient)


def test_rows_that_pad_a_batch_do_not_count() -> None:
    rows = torch.tensor([True, True, False])
    for name, outputs, targets in (
        ("classification", LOGITS, TARGETS),
        ("regression", LOGITS[:, :1], torch.ones(3, 1)),
    ):
        padded = mean_loss(TASKS[name], outputs, {"y": targets, "_rows": rows})
        assert float(padded) == pytest.approx(float(mean_loss(TASKS[name], outputs[:2], {"y": targets[:2]})))


def test_weights_weigh_the_samples() -> None:
    weights = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    loss = mean_loss(TASKS["classification"], LOGITS, {"y": TARGETS}, weights)
    assert float(loss) == pytest.approx((LOSSES[0] + 0.5 * LOSSES[2]) / 3)


def test_classes_that_a_client_does_not_have_get_probability_zero() -> None:
    outputs = torch.tensor([[1.0, 2.0, 9.0]])
    hidden = hide_padded_outputs(outputs, {"_outputs": torch.tensor(2)})
    assert torch.softmax(hidden, -1)[0, 2] == 0.0
    assert torch.equal(hidden[:, :2], outputs[:, :2])
    assert hide_padded_outputs(outputs, {}) is outputs


def test_ignored_tokens_do_not_count() -> None:
    """Two tokens of which one counts, and a row of which none does."""
    task, outputs = TASKS["language"], torch.stack([LOGITS[:2], LOGITS[:2]])
    targets = torch.tensor([[0, IGNORED], [IGNORED, IGNORED]])
    assert task.losses(outputs, targets).tolist() == pytest.approx([LOSSES[0], 0.0])
    assert task.scores["accuracy"](outputs, targets).tolist() == [1.0, 0.0]


def test_labels_and_numbers_by_hand() -> None:
    labels = torch.tensor([[True, False]])
    assert TASKS["multilabel"].losses(torch.zeros(1, 2), labels).tolist() == pytest.approx([math.log(2.0)])
    best = torch.tensor([[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]])
    wanted = torch.tensor([[1, 0, 0, 0, 0, 1]])
    assert TASKS["multilabel"].scores["recall_at_5"](best, wanted).tolist() == [0.5]
    assert TASKS["regression"].losses(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 1.0]])).tolist() == [2.5]
    assert TASKS["direct"].losses(torch.tensor([4.0, 5.0]), torch.zeros(2)).tolist() == [4.0, 5.0]


@pytest.mark.parametrize(
    ("targets", "name"),
    [
        (torch.zeros(2), "regression"),
        (torch.zeros(2, 3, dtype=torch.bool), "multilabel"),
        (torch.zeros(2, 3, dtype=torch.int64), "language"),
        (torch.zeros(2, dtype=torch.int64), "classification"),
    ],
)
def test_the_task_that_fits_the_targets(targets: torch.Tensor, name: str) -> None:
    assert as_task(None, targets).name == name
    assert as_task(name, None) is TASKS[name]


def test_without_targets_a_loss_is_not_guessed() -> None:
    """A model that gets its targets as `labels` would train its logits towards minus infinity."""
    with pytest.raises(ft.ConfigError, match=r"name the column of targets 'y'; loss='direct' if .* Got no column 'y'"):
        as_task(None, None)


def test_a_loss_of_ones_own_may_be_per_sample_or_not() -> None:
    for loss in (lambda outputs, targets: outputs.mean(-1), lambda outputs, targets: outputs.mean()):
        own = as_task(loss, None)
        assert float(mean_loss(own, LOGITS, {"y": TARGETS})) == pytest.approx(float(LOGITS.mean()))
        assert own.metric == "loss"
        assert not own.rows_apart  # nothing is promised, so nothing is padded


@pytest.mark.parametrize(("loss", "message"), [("clasification", "Did you mean 'classification'"), (3, "Got 3")])
def test_a_loss_that_is_not_known(loss: object, message: str) -> None:
    with pytest.raises(ft.ConfigError, match=message):
        as_task(loss, None)  # type: ignore[arg-type]


def test_regression_refuses_outputs_in_another_layout() -> None:
    with pytest.raises(ft.ModelError, match="outputs of the targets' shape"):
        ft.tasks.regression.losses(torch.zeros(2, 2, 3), torch.zeros(2, 3, 2))
    assert ft.tasks.regression.losses(torch.ones(4, 1), torch.zeros(4)).tolist() == [1.0] * 4
