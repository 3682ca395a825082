"""Polyak's ratio on numbers that a reader can check."""

from __future__ import annotations

import torch

from fedtempo.algorithms.parts.polyak import of_data_alone, polyak_ratio
from fedtempo.client.objectives import Received
from fedtempo.client.rules import Probe

ONE = {"w": torch.tensor([2.0])}
RECEIVED = Received(ONE, extra={})
PROBE = Probe(ONE, torch.tensor(3.0), ONE, lambda params: params, RECEIVED, 0.1, of_data=(ONE, torch.tensor(1.0)))


def test_the_ratio_by_hand() -> None:
    ratio, steep, above = polyak_ratio(PROBE, lower=1.0, c=0.5, eps=0.0)
    assert (ratio.item(), bool(steep), bool(above)) == (1.0, True, True)  # (3 - 1) / (0.5 * 4)


def test_a_zero_gradient_and_a_loss_below_the_bound_are_told_apart() -> None:
    flat = PROBE._replace(gradient={"w": torch.zeros(1)})
    _, steep, above = polyak_ratio(flat, lower=4.0, c=0.5, eps=0.0)
    assert (bool(steep), bool(above)) == (False, False)


def test_the_data_alone_leave_the_proximal_term_out() -> None:
    assert of_data_alone(PROBE).loss.item() == 1.0
