"""Aggregation: uploads are added up in float64, block by block, in client order.

A server only ever sees sums, so partial sums can be made anywhere: in a worker, on another machine. The cut
into blocks is fixed, so the sum has the same bits wherever the blocks were computed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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


@dataclass
class BlockSum:
    """The sum over a block of clients: as large for a thousand clients as for one, but for what they keep."""

    sums: Groups = field(default_factory=dict)
    weight: float = 0.0
    clients: int = 0
    loss: float = 0.0
    """Weighted by the clients' weights."""
    measurements: dict[str, float] = field(default_factory=dict)
    personal: dict[int, Params] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def add_client(self, weight: float, loss: float, measurements: Mapping[str, float]) -> None:
        """Count one client whose upload is, or will be, in the sums."""
        self.weight += weight
        self.clients += 1
        self.loss += weight * loss
        _accumulate(self.measurements, measurements)

    def add_groups(self, groups: Groups, weight: float = 1.0, unweighted: Collection[str] = ()) -> None:
        """Add an upload in float64; groups named in `unweighted` count once whatever the weight."""
        for group, tensors in groups.items():
            factor = 1.0 if group in unweighted else weight
            total = self.sums.setdefault(group, {})
            for name, tensor in tensors.items():
                term = tensor.to(torch.float64) * factor
                total[name] = total[name].add_(term) if name in total else term

    def add_block(self, other: BlockSum) -> None:
        """Add a later block."""
        self.add_groups(other.sums)
        self.weight += other.weight
        self.clients += other.clients
        self.loss += other.loss
        _accumulate(self.measurements, other.measurements)
        self.personal.update(other.personal)
        self.failures += other.failures


def _accumulate(into: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        into[name] = into.get(name, 0.0) + value


class Aggregate(NamedTuple):
    """The cohort's mean of each group of the upload, with the totals behind it."""

    means: Groups
    weight: float
    clients: int


def total(blocks: Iterable[BlockSum]) -> BlockSum:
    """All blocks added in the order given."""
    result = BlockSum()
    for block in blocks:
        result.add_block(block)
    return result


def mean(block: BlockSum, unweighted: Collection[str], dtype: torch.dtype) -> Aggregate:
    """Divide sums by the total weight, or by the number of clients for unweighted groups."""
    means = {
        group: {n: (t / (block.clients if group in unweighted else block.weight)).to(dtype) for n, t in tensors.items()}
        for group, tensors in block.sums.items()
    }
    return Aggregate(means, block.weight, block.clients)


def squared_length(groups: Groups) -> Tensor:
    """The squared norm of a whole upload in float64; not finite exactly when the upload is not."""
    return torch.stack([t.to(torch.float64).square().sum() for g in groups.values() for t in g.values()]).sum()
