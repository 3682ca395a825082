"""Aggregation: uploads are added up in float64, block by block, in client order.

A server only ever sees sums, so partial sums can be made anywhere: in a worker, on another machine. The cut
into blocks is fixed, so the sum has the same bits wherever the blocks were computed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fedtempo.params import Params

Groups = dict[str, Params]


class Failure(NamedTuple):
    """A client whose result does not count, and why."""

    client: int
    reason: str


class ClientReport(NamedTuple):
    """What the server learns about one client's round besides its upload: a closed list of numbers."""

    client: int
    weight: float
    loss: float
    steps: int
    samples: int
    measurements: dict[str, float]


@dataclass
class BlockSum:
    """The sum over a block of clients, what they keep for themselves, and who failed."""

    sums: Groups = field(default_factory=dict)
    weight: float = 0.0
    reports: list[ClientReport] = field(default_factory=list)
    personal: dict[int, Params] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def add(self, groups: Groups, weight: float, unweighted: Collection[str]) -> None:
        """Add one client's upload; groups named in `unweighted` count once whatever the weight."""
        for group, tensors in groups.items():
            factor = 1.0 if group in unweighted else weight
            total = self.sums.setdefault(group, {})
            for name, tensor in tensors.items():
                term = tensor.to(torch.float64) * factor
                total[name] = total[name].add_(term) if name in total else term
        self.weight += weight


class Aggregate(NamedTuple):
    """The cohort's mean of each group of the upload, with the totals behind it."""

    means: Groups
    weight: float
    clients: int


def total(blocks: Iterable[BlockSum]) -> BlockSum:
    """All blocks added in the order given."""
    result = BlockSum()
    for block in blocks:
        for group, tensors in block.sums.items():
            into = result.sums.setdefault(group, {})
            for name, tensor in tensors.items():
                into[name] = into[name] + tensor if name in into else tensor
        result.weight += block.weight
        result.reports += block.reports
        result.personal.update(block.personal)
        result.failures += block.failures
    return result


def mean(block: BlockSum, unweighted: Collection[str], dtype: torch.dtype) -> Aggregate:
    """Divide sums by the total weight, or by the number of clients for unweighted groups."""
    count = len(block.reports)
    means = {
        group: {n: (t / (count if group in unweighted else block.weight)).to(dtype) for n, t in tensors.items()}
        for group, tensors in block.sums.items()
    }
    return Aggregate(means, block.weight, count)


def squared_length(groups: Groups) -> Tensor:
    """The squared norm of a whole upload in float64; not finite exactly when the upload is not."""
    return torch.stack([t.to(torch.float64).square().sum() for g in groups.values() for t in g.values()]).sum()
