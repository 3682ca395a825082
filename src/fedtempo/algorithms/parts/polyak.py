"""Polyak's ratio of a loss to its squared gradient, which FedSPS and FedDecSPS take their rates from."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtempo.client.rules import Probe
from fedtempo.params import squared_norm


def of_data_alone(probe: Probe) -> Probe:
    """The probe with gradient and loss of the data alone, without a proximal term."""
    assert probe.of_data is not None  # `ruled` refuses other objectives
    gradient, loss = probe.of_data
    return probe._replace(gradient=gradient, loss=loss)


def polyak_ratio(probe: Probe, lower: float, c: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(f - lower) / (c |g|^2 + eps), whether the gradient is not zero, and whether the loss is at least `lower`."""
    gap, square = probe.loss.to(torch.float64) - lower, squared_norm(probe.gradient).to(torch.float64)
    steep = square > 0
    return gap / (c * torch.where(steep, square, 1.0) + eps), steep, gap >= 0
