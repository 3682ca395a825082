"""Aggregation: uploads are added up in float64, block by block, in client order.

A server only ever sees sums, so partial sums can be made anywhere: in a worker, on another machine. The cut
into blocks is fixed, so the sum has the same bits wherever the blocks were computed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
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
    norms: list[float] = field(default_factory=list)
    """Norms of accepted displacements, where admission or an aggregator looks at them."""
    each: list[tuple[float, Params]] = field(default_factory=list)
    """Weights and displacements one by one, for aggregators that need every upload."""

    def add_clients(self, weights: Sequence[float], losses: Sequence[float], measurements: Mapping[str, float]) -> None:
        """Count clients whose uploads are, or will be, in the sums; `measurements` are their sums."""
        self.weight += sum(weights)
        self.clients += len(weights)
        self.loss += sum(weight * loss for weight, loss in zip(weights, losses, strict=True))
        _accumulate(self.measurements, measurements)

    def add_groups(self, groups: Groups, weight: float = 1.0, unweighted: Collection[str] = ()) -> None:
        """Add an upload in float64; groups named in `unweighted` count once whatever the weight.

        Sums are laid out row by row whatever the layout of the upload, so that what reads them gets the same bits.
        """
        for group, tensors in groups.items():
            factor = 1.0 if group in unweighted else weight
            total = self.sums.setdefault(group, {})
            for name, tensor in tensors.items():
                if name in total:
                    total[name].add_(tensor, alpha=factor)
                else:
                    first = torch.empty(tensor.shape, dtype=torch.float64, device=tensor.device).copy_(tensor)
                    total[name] = first if factor == 1.0 else first.mul_(factor)

    def add_block(self, other: BlockSum) -> None:
        """Add a later block, which is used up."""
        if self.sums:
            self.add_groups(other.sums)
        else:
            self.sums = other.sums
        self.weight += other.weight
        self.clients += other.clients
        self.loss += other.loss
        _accumulate(self.measurements, other.measurements)
        self.personal.update(other.personal)
        self.failures += other.failures
        self.norms += other.norms
        self.each += other.each


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


def finite(tensors: Sequence[Tensor]) -> bool:
    """Whether all numbers are finite. A finite sum says so at once; one that overflows is looked at again."""
    sums = [t.sum() for t in tensors if t.is_floating_point()]
    if not sums or math.isfinite(sum(s.item() for s in sums)):
        return True
    return all(bool(torch.isfinite(t).all()) for t in tensors)
