"""The private mean of a round: clipped uploads, noise on their sum, and a divisor that nobody's upload decides."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fedtempo.errors import require
from fedtempo.params import Params
from fedtempo.server.exact_sums import LAST_BIT
from fedtempo.server.noise import Secret, grid_of, noised
from fedtempo.server.sums import Aggregate, BlockSum


def clipped(delta: Mapping[str, Tensor], bound: float, noise: float) -> Params:
    """The displacement in float64, no longer than the bound even after the sum has been rounded to the noise's grid."""
    wide = {name: tensor.to(torch.float64) for name, tensor in delta.items()}
    length = math.sqrt(math.fsum(float(t.square().sum()) for t in wide.values()))
    # Rounding the sum to the grid may move it by up to one grid step per coordinate. The clip leaves room for that.
    coordinates = math.sqrt(sum(t.numel() for t in wide.values()))
    room = coordinates * grid_of(noise * bound)
    # The last term is for the rounding of the norm itself and, where the bound is tiny, of exact sums.
    limit = bound - room - max(bound * 2.0**-40, coordinates * LAST_BIT)
    require(limit > 0, "bound", f"larger than the rounding of so many parameters ({room:g})", bound)
    factor = min(1.0, limit / length) if length else 1.0
    return {name: tensor * factor for name, tensor in wide.items()}


def private_aggregate(
    block: BlockSum,
    like: Mapping[str, tuple[torch.Size, torch.dtype]],
    deviation: float,
    secret: Secret,
    round_number: int,
    cohort: float,
) -> Aggregate:
    """(sum of clipped displacements + noise) / expected cohort.

    A client that was not asked, did not answer or was refused counts as a displacement of zero. The divisor is the
    expected number of clients. The true number depends on the clients, and dividing by it would publish it without
    noise.
    """
    sums = {name: total.value for name, total in block.sums.get("delta", {}).items()}
    sums = sums or {name: torch.zeros(shape, dtype=torch.float64) for name, (shape, _) in like.items()}
    private = noised(sums, deviation, secret, round_number)
    means = {name: (value / cohort).to(like[name][1]) for name, value in private.items()}
    return Aggregate({"delta": means}, cohort, cohort)
