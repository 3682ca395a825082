"""Aggregation: uploads are added up exactly, in any order and any grouping.

The server needs sums only, so partial sums can be made anywhere: in a worker, on another machine. The sums are exact
(`exact_sums.py`), so the total has the same bits wherever they were made, and a refused upload leaves no trace in it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtempo.params import Params, all_finite
from fedtempo.server.exact_sums import Exact, ExactNumber, empty_sum

Groups = dict[str, Params]
"""An upload: tensors by name, by group. The group "delta" is the displacement; SCAFFOLD adds one for its variates."""
Sums = dict[str, dict[str, Exact]]
"""Sums over uploads, in the same form."""
MOST_NUMBER = 1e200
"""A loss or a measurement of a client above this is left out: times a weight, sums of them would not be finite."""


NOT_FINITE, TOO_LARGE_TO_ADD = "not finite", "too large to add"


class Failure(NamedTuple):
    """A client whose result does not count, and why."""

    client: int
    reason: str


@dataclass
class BlockSum:
    """The sum over a block of clients. Apart from personal states its size does not depend on the number of clients."""

    sums: Sums = field(default_factory=dict)
    weight: float = 0.0
    """The sum of the clients' weights: whole numbers, or ones, so it is exact without further care."""
    clients: int = 0
    loss: ExactNumber = field(default_factory=ExactNumber)
    """Weighted by the clients' weights; `loss_weight` is the weight of those whose loss is finite."""
    loss_weight: float = 0.0
    measurements: dict[str, ExactNumber] = field(default_factory=dict)
    personal: dict[int, Params] = field(default_factory=dict)
    """What each accepted client keeps for its next round."""
    failures: list[Failure] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    """Norms of accepted displacements, where admission or an aggregator looks at them."""
    each: list[tuple[float, Params]] = field(default_factory=list)
    """Weights and displacements one by one, for aggregators that need every upload."""

    @property
    def mean_loss(self) -> float:
        """The weighted mean of the clients' losses that are finite; NaN where there is none."""
        return self.loss.value / self.loss_weight if self.loss_weight else float("nan")

    def add_clients(self, weights: np.ndarray, losses: np.ndarray, measurements: Mapping[str, np.ndarray]) -> None:
        """Count clients whose uploads are, or will be, in the sums; one number per client in each array.

        A loss or measurement that is not finite, or would make the sum so, is left out: the others' can still be read.
        """
        # A client may have a sound update and an infinite loss (a row with probability 0). Its update still counts.
        known = np.abs(losses) <= MOST_NUMBER
        if not known.all():
            measurements = {**measurements, "losses_left_out": (~known).astype(np.float64)}
        self.weight += float(weights.sum())
        self.clients += len(weights)
        self.loss = self.loss.plus(weights[known] * losses[known])
        self.loss_weight += float(weights[known].sum())
        for name, values in measurements.items():
            finite_values = values[np.abs(values) <= MOST_NUMBER]
            self.measurements[name] = self.measurements.get(name, ExactNumber()).plus(finite_values)

    def add_upload(self, groups: Groups, weight: float = 1.0, unweighted: Collection[str] = ()) -> None:
        """Add one upload; groups named in `unweighted` count once whatever the weight."""
        for group, tensors in groups.items():
            factor = 1.0 if group in unweighted else weight
            total = self.sums.setdefault(group, {})
            for name, tensor in tensors.items():
                if name not in total:
                    total[name] = empty_sum(tensor)
                total[name].add(tensor, factor)

    def add_sums(self, sums: Sums) -> None:
        """Add sums over other clients. Their tensors may become this sum's own: do not use them afterwards."""
        for group, tensors in sums.items():
            total = self.sums.setdefault(group, {})
            for name, tensor in tensors.items():
                if name in total:
                    total[name].merge(tensor)
                else:
                    total[name] = tensor

    def add_block(self, other: BlockSum) -> None:
        """Add another block. Its tensors may become this block's own: do not use it afterwards."""
        self.add_sums(other.sums)
        self.weight += other.weight
        self.clients += other.clients
        self.loss = self.loss.merged(other.loss)
        self.loss_weight += other.loss_weight
        for name, value in other.measurements.items():
            self.measurements[name] = self.measurements.get(name, ExactNumber()).merged(value)
        self.personal.update(other.personal)
        self.failures += other.failures
        self.norms += other.norms
        self.each += other.each


class Aggregate(NamedTuple):
    """The cohort's mean of each group of the upload, with the totals behind it."""

    means: Groups
    weight: float
    clients: float
    """How many uploads there are; for a private mean, how many were expected, because the true number is secret."""


def total(blocks: Iterable[BlockSum]) -> BlockSum:
    """All blocks added up; the lists in them keep the order given."""
    result = BlockSum()
    for block in blocks:
        result.add_block(block)
    return result


def addable(tensors: Iterable[Tensor], lanes: int = 1) -> Tensor:
    """Which clients' tensors can be added up: all are finite, and their squares too, as server rules square them.

    Each tensor has a client per row, or is one client's own. One number of 3e38 would make a float32 model infinite.
    """
    bounded = [_bounded(t.reshape(lanes, -1)) for t in tensors if t.is_floating_point() and t.numel()]
    # What a client keeps of errors of compression, and its last loss, are on the CPU wherever the model is.
    places = [torch.stack([b for b in bounded if b.device == device]).all(0) for device in {b.device for b in bounded}]
    if not places:
        return torch.ones(lanes, dtype=torch.bool)
    return places[0] if len(places) == 1 else torch.stack([place.cpu() for place in places]).all(0)


def _bounded(rows: Tensor) -> Tensor:
    kind = torch.promote_types(rows.dtype, torch.float32)
    most = math.sqrt(torch.finfo(kind).max)
    within: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=kind) <= most  # a NaN is not below it either
    return within


def unaddable(tensors: Iterable[Tensor]) -> str | None:
    """Why one client's tensors cannot be added up; None if they can."""
    own = list(tensors)
    if bool(addable(own)):
        return None
    return TOO_LARGE_TO_ADD if all_finite(own) else NOT_FINITE


def mean(block: BlockSum, unweighted: Collection[str], dtype: torch.dtype) -> Aggregate:
    """The mean of each group: its sum over the total weight, or over the number of clients for unweighted groups."""
    # The division happens once, at the very end: a mean of means would round at every worker. Clients that a deadline
    # stopped before they touched the shared tensors may weigh nothing; a sum of nothing moves nothing.
    weight = block.weight or 1.0
    means = {
        group: {n: t.mean(block.clients if group in unweighted else weight, dtype) for n, t in tensors.items()}
        for group, tensors in block.sums.items()
    }
    return Aggregate(means, block.weight, block.clients)
