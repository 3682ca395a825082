"""The one-parameter model of the decaying-K paper's illustration."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Quadratic(nn.Module):
    """One number x; for a sample z the output is the loss itself, (z/2) x^2 - x. Use it with `loss="direct"`."""

    def __init__(self, start: float = 0.4) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor(float(start)))

    def forward(self, z: Tensor) -> Tensor:
        """The loss of every sample."""
        return 0.5 * z * self.x**2 - self.x


def quadratic(start: float = 0.4) -> Quadratic:
    """The model of section 3 of the decaying-K paper, x_1 = 0.4."""
    return Quadratic(start)
