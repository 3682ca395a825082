"""The sum of the rates of a client's steps, noted in each: displacement over this sum is the mean direction."""

from __future__ import annotations

import torch

from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry, StepInfo
from fedtempo.schedules import Position

TRAVELLED = "_travelled"
"""The scratch entry that holds sum_k l_k, the sum of the learning rates of the steps so far."""


def add_rate(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
    """Add the step's rate to the sum of rates."""
    return carry._replace(scratch={**carry.scratch, TRAVELLED: carry.scratch[TRAVELLED] + step.rate})


def sum_of_rates(carry: Carry) -> torch.Tensor:
    """The sum of the rates of the client's steps, to divide its displacement by."""
    # If all rates are 0 the displacement is 0 as well; the tiny floor makes 0 / 0 a 0. In a model of 32 bits the floor
    # of 64 bits would be 0 itself.
    return carry.scratch[TRAVELLED].clamp(min=torch.finfo(torch.float32).tiny)
