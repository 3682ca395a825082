"""f_i(x): a client's loss at the received model, over all its training rows, noted before the first step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from fedtempo.algorithms.algorithm import Algorithm, Memory
from fedtempo.client.local_step import sent_down
from fedtempo.client.network import Network
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry, Hook
from fedtempo.client.program import Begin
from fedtempo.client.rules import zero_of
from fedtempo.errors import ConfigError, first_line, require, shown
from fedtempo.params import Params
from fedtempo.tasks import Batch, Task

WEIGHTS = "the clients' weights"
"""What is owned by algorithms in which a client's loss decides how much it counts."""
LOSS = "_loss_at_start"
"""The scratch entry that holds f_i(x), in float64."""
TRIED_LOSSES = (0.1, 1.0, 10.0)
"""Losses at which a rule of the user's is tried before training."""


def noting_loss(algorithm: Algorithm) -> Algorithm:
    """The algorithm whose clients also note f_i(x); its first phase sees all rows once for that."""
    first, *others = algorithm.phases
    memory: Memory = replace(algorithm.memory, begin=_with_zero(algorithm.memory.begin))
    first = replace(first, hooks=(Hook(enter=_note_loss), *first.hooks))
    return replace(algorithm, phases=(first, *others), memory=memory)


def _with_zero(begin: Begin) -> Begin:
    def begun(received: Received, personal: Params) -> tuple[Params, Params]:
        own, scratch = begin(received, personal)
        return own, {**scratch, LOSS: zero_of(received.shared)}

    return begun


def _note_loss(network: Network, task: Task, received: Received, carry: Carry, data: Batch) -> tuple[Carry, Batch]:
    # Not at the client's own start, where that is another one (FedInit).
    shared = sent_down(received, carry.scratch)
    layers = {n: t for n, t in carry.personal.items() if n not in shared}
    loss = network.loss(task, {**shared, **layers}, data).to(torch.float64)
    return carry._replace(scratch={**carry.scratch, LOSS: loss}), data


def check_weigh(weigh: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A client's weight is one number that is not negative: with another the model would go uphill for it."""
    rule = "a function of a loss that returns a tensor with one number >= 0"
    require(callable(weigh), "weigh", rule, weigh)
    for loss in TRIED_LOSSES:
        try:
            found = weigh(torch.tensor(loss, dtype=torch.float64))
        except Exception as error:  # the user's code
            what = f"{type(error).__name__} ({first_line(error)})"
            raise ConfigError(f"weigh must be {rule}. Got {what} for a loss of {loss}.") from error
        holds = isinstance(found, torch.Tensor) and found.dim() == 0 and math.isfinite(found) and found >= 0
        if not holds:
            got = found.tolist() if isinstance(found, torch.Tensor) else shown(found)
            raise ConfigError(f"weigh must be {rule}. Got {got} for a loss of {loss}.")
