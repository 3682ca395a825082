"""Models that break in a worker, in a module that workers of every kind can import."""

from __future__ import annotations

import os
import signal

import torch
from torch import nn


class Fatal(nn.Module):
    """A linear layer that kills its own process: once for every file that is there to be taken away."""

    def __init__(self, *markers: str) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.markers, self.driver = markers, os.getpid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for marker in self.markers if os.getpid() != self.driver else ():
            try:
                os.unlink(marker)  # noqa: PTH108 - inside a model
            except FileNotFoundError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        output: torch.Tensor = self.linear(x)
        return output


class Unlucky(nn.Module):
    """A linear layer that some rows break, but not in the driver."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.error, self.driver = error, os.getpid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if os.getpid() != self.driver and (x > 99).any():
            raise self.error("these rows are bad")
        output: torch.Tensor = self.linear(x)
        return output
