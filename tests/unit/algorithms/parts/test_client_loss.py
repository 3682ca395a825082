"""A rule that weighs clients by their loss is tried before training."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fedtempo as ft

PLAIN = ft.algorithms.fedavg(lr=0.1, steps=1)


@pytest.mark.parametrize(
    ("weigh", "got"),
    [
        (lambda loss: -loss, "-0.1 for a loss of 0.1"),
        (lambda loss: (loss - 9).sqrt(), "nan for a loss of 0.1"),
        (lambda loss: 1.0, "1.0 for a loss of 0.1"),
        (lambda loss: "heavy", "'heavy' for a loss of 0.1"),
        (lambda loss: torch.stack([loss, loss]), r"\[0.1, 0.1\] for a loss of 0.1"),
        (lambda loss: loss / 0 if loss > 5 else 1 / int(loss), "ZeroDivisionError"),
        ("power", "Got 'power'"),
    ],
)
def test_a_rule_that_gives_no_weight_is_refused(weigh: Any, got: str) -> None:
    """A negative weight made a client train uphill; others ended in words about uploads, or in a round without any."""
    with pytest.raises(ft.ConfigError, match=f"weigh must be a function of a loss .*{got}"):
        ft.algorithms.loss_weighted(PLAIN, weigh=weigh)


def test_rules_that_give_weights_are_taken() -> None:
    for weigh in (torch.exp, torch.sqrt, lambda loss: loss.clamp(max=2.0), lambda loss: (loss > 1).float()):
        assert ft.algorithms.loss_weighted(PLAIN, weigh=weigh).name == "loss_weighted"
