"""Aggregators beside the plain mean: robust ones, and a differentially private one.

An aggregator turns the cohort's displacements into one. Those that only shorten uploads (`norm_bounded`,
`private_mean`) still work on sums; the others need every upload at the server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedtempo.errors import ConfigError, is_count, is_number, require, takes_numbers
from fedtempo.params import Params, norm, scaled
from fedtempo.server.sums import Groups

Stacked = dict[str, Tensor]
Combine = Callable[[Stacked, Tensor], Params]
"""(displacements stacked on the first dimension, weights) -> one displacement."""


@dataclass(frozen=True)
class Aggregator:
    """How uploads become one. `bound` shortens each displacement first; `noise` is added to the mean."""

    name: str
    bound: float | None = None
    noise: float = 0.0
    """Standard deviation of the noise on the sum, as a multiple of the bound."""
    combine: Combine | None = field(default=None, compare=False)
    """For aggregators that need every upload."""

    def bounded(self, groups: Groups) -> Groups:
        """The upload with its displacement no longer than the bound."""
        if self.bound is None or not groups.get("delta"):
            return groups
        length = float(norm({n: t.to(torch.float64) for n, t in groups["delta"].items()}))
        return {**groups, "delta": scaled(groups["delta"], min(1.0, self.bound / length) if length else 1.0)}


plain_mean = Aggregator("mean")


def median() -> Aggregator:
    """The middle value of each coordinate; of an even number, the mean of the two in the middle."""

    def combine(stacked: Stacked, weights: Tensor) -> Params:
        return {n: torch.quantile(t.to(torch.float64), 0.5, dim=0).to(t.dtype) for n, t in stacked.items()}

    return Aggregator("median", combine=combine)


@takes_numbers
def trimmed_mean(share: float = 0.1) -> Aggregator:
    """The mean of each coordinate without the `share` smallest and the `share` largest values (Yin et al., 2018)."""
    require(is_number(share) and 0 <= share < 0.5, "share", "a number in [0, 0.5)", share)

    def combine(stacked: Stacked, weights: Tensor) -> Params:
        cut = int(share * len(weights))
        return {n: t.sort(dim=0).values[cut : len(weights) - cut].mean(dim=0) for n, t in stacked.items()}

    return Aggregator(f"trimmed_mean({share})", combine=combine)


@takes_numbers
def norm_bounded(bound: float) -> Aggregator:
    """The mean of displacements shortened to at most `bound`."""
    require(is_number(bound) and bound > 0, "bound", "a number > 0", bound)
    return Aggregator(f"norm_bounded({bound})", bound=bound)


@takes_numbers
def krum(faulty: int, keep: int = 1) -> Aggregator:
    """The mean of the `keep` displacements closest to their n - faulty - 2 nearest others (Blanchard et al., 2017)."""
    require(is_count(faulty, 0), "faulty", "an int >= 0", faulty)
    require(is_count(keep), "keep", "an int >= 1", keep)

    def combine(stacked: Stacked, weights: Tensor) -> Params:
        flat = torch.cat([t.flatten(1).to(torch.float64) for t in stacked.values()], dim=1)
        others = len(flat) - faulty - 2
        if others < 1:
            raise ConfigError(
                f"krum must see more than {faulty + 2} uploads for {faulty} faulty ones. Got {len(flat)}."
            )
        distances = torch.cdist(flat, flat).square().sort(dim=1).values
        chosen = distances[:, 1 : others + 1].sum(1).argsort()[:keep].sort().values
        return {n: t[chosen].mean(dim=0) for n, t in stacked.items()}

    return Aggregator(f"krum({faulty}, {keep})", combine=combine)


@takes_numbers
def private_mean(bound: float, noise: float) -> Aggregator:
    """The mean of displacements shortened to `bound`, plus Gaussian noise of deviation noise * bound / |S| (DP-FedAvg).

    Needs uniform weights. `epsilon` says what it guarantees, by Opacus's accountant.
    """
    require(is_number(bound) and bound > 0, "bound", "a number > 0", bound)
    require(is_number(noise) and noise > 0, "noise", "a number > 0", noise)
    return Aggregator(f"private_mean({bound}, {noise})", bound=bound, noise=noise)


def epsilon(noise: float, rounds: int, sampling: float, delta: float) -> float:
    """The privacy loss of `rounds` private means over clients drawn with probability `sampling`, at this delta.

    Computed by Opacus's Renyi accountant (extra `privacy`), for Poisson sampling of clients and neighbours that differ
    in one client; a cohort of fixed size is close to it but not covered by its theorem.
    """
    require(is_number(noise) and noise > 0, "noise", "a number > 0", noise)
    require(is_number(sampling) and 0 < sampling <= 1, "sampling", "a number in (0, 1]", sampling)
    require(is_number(delta) and 0 < delta < 1, "delta", "a number in (0, 1)", delta)
    try:
        from opacus.accountants import RDPAccountant
    except ImportError:
        raise ConfigError("epsilon must have the extra 'privacy' installed: pip install 'fedtempo[privacy]'.") from None
    accountant = RDPAccountant()
    accountant.history = [(noise, sampling, rounds)]
    return float(accountant.get_epsilon(delta))


AGGREGATORS: dict[str, Callable[..., Aggregator]] = {
    "median": median,
    "trimmed_mean": trimmed_mean,
    "norm_bounded": norm_bounded,
    "krum": krum,
    "private_mean": private_mean,
}
