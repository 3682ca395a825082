"""Aggregators beside the plain mean: robust ones, and a differentially private one.

An aggregator turns the cohort's displacements into one. Those that only shorten uploads (`norm_bounded`,
`private_mean`) still work on sums; the others need every upload at the server.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedtempo.errors import ConfigError, is_count, is_number, require, takes_numbers
from fedtempo.params import Params, scaled
from fedtempo.server.admission import delta_norm
from fedtempo.server.noise import Secret, fresh_secret, insecure_secret
from fedtempo.server.privacy_accounting import Guarantee, epsilon
from fedtempo.server.private_mean import clipped
from fedtempo.server.sums import Groups

__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "Guarantee",
    "epsilon",
    "krum",
    "median",
    "norm_bounded",
    "plain_mean",
    "private_mean",
    "trimmed_mean",
]

ROBUST = ("delta", "buffers")
"""The groups of an upload that a robust aggregator combines. Others would be plain means, which one client can move."""
Stacked = dict[str, Tensor]
Combine = Callable[[Stacked, Tensor], Params]
"""(displacements stacked on the first dimension, weights) -> one displacement."""


@dataclass(frozen=True)
class Aggregator:
    """How uploads are combined. Each displacement is first clipped to norm `bound`; `noise` is added to their sum."""

    name: str
    bound: float | None = None
    noise: float = 0.0
    """Standard deviation of the noise on the sum, as a multiple of the bound."""
    combine: Combine | None = field(default=None, compare=False)
    """For aggregators that need every upload, such as a median. None for those that need only the sum."""
    delta: float | None = None
    """The delta at which a private run reports its epsilon."""
    noise_seed: int | None = None
    """Makes the noise predictable, for tests; INSECURE."""
    fewest: int = 1
    """Uploads that it takes at least: a round with fewer is below its quorum."""

    def __repr__(self) -> str:
        return self.name

    @property
    def private(self) -> bool:
        """Whether noise hides what a client sends."""
        return self.noise > 0

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on the sum."""
        return self.noise * (self.bound or 0.0)

    def secret(self) -> Secret | None:
        """The key of a new run's noise; None where there is no noise."""
        if not self.private:
            return None
        return fresh_secret() if self.noise_seed is None else insecure_secret(self.noise_seed)

    def bounded(self, groups: Groups) -> Groups:
        """The upload with its displacement no longer than the bound."""
        if self.bound is None or not groups.get("delta"):
            return groups
        if self.private:
            return {**groups, "delta": clipped(groups["delta"], self.bound, self.noise)}
        found = delta_norm(groups)
        return {**groups, "delta": scaled(groups["delta"], min(1.0, self.bound / found) if found else 1.0)}


plain_mean = Aggregator("mean")


def median() -> Aggregator:
    """The middle value of each coordinate; of an even number, the mean of the two in the middle.

    >>> uploads = {"w": torch.tensor([1.0, 2.0, 3.0, 4.0, 100.0])}
    >>> median().combine(uploads, torch.ones(5))["w"]
    tensor(3.)
    """

    def combine(stacked: Stacked, weights: Tensor) -> Params:
        # `torch.quantile` takes neither a tensor without numbers nor one of more than 16 million.
        low, high = (len(weights) - 1) // 2, len(weights) // 2
        ordered = {n: t.to(torch.float64).sort(dim=0).values for n, t in stacked.items()}
        return {n: torch.lerp(t[low], t[high], 0.5).to(stacked[n].dtype) for n, t in ordered.items()}

    return Aggregator("median", combine=combine)


@takes_numbers
def trimmed_mean(share: float = 0.1) -> Aggregator:
    """The mean of each coordinate without the `share` smallest and the `share` largest values (Yin et al., 2018).

    >>> uploads = {"w": torch.tensor([1.0, 2.0, 3.0, 4.0, 100.0])}
    >>> trimmed_mean(0.2).combine(uploads, torch.ones(5))["w"]
    tensor(3.)
    """
    require(is_number(share) and 0 <= share < 0.5, "share", "a number in [0, 0.5)", share)

    def combine(stacked: Stacked, weights: Tensor) -> Params:
        # The small number undoes rounding: 0.29 of 100 is 29, and 28.999... in floating point.
        cut = math.floor(share * len(weights) + 1e-9)
        return {n: t.sort(dim=0).values[cut : len(weights) - cut].mean(dim=0) for n, t in stacked.items()}

    return Aggregator(f"trimmed_mean({share})", combine=combine)


@takes_numbers
def norm_bounded(bound: float) -> Aggregator:
    """The mean of displacements shortened to at most `bound`.

    >>> norm_bounded(1.0).bounded({"delta": {"w": torch.tensor([3.0, 4.0])}})
    {'delta': {'w': tensor([0.6000, 0.8000])}}
    """
    require(is_number(bound) and bound > 0, "bound", "a number > 0", bound)
    return Aggregator(f"norm_bounded({bound})", bound=bound)


@takes_numbers
def krum(faulty: int, keep: int = 1) -> Aggregator:
    """The mean of the `keep` displacements closest to their n - faulty - 2 nearest others (Blanchard et al., 2017).

    A cohort must have `faulty` + 3 clients or more; a round with fewer uploads is abandoned.

    >>> uploads = {"w": torch.tensor([1.0, 2.0, 3.0, 4.0, 100.0])}
    >>> krum(faulty=1).combine(uploads, torch.ones(5))["w"]
    tensor(2.)
    """
    require(is_count(faulty, 0), "faulty", "an int >= 0", faulty)
    require(is_count(keep), "keep", "an int >= 1", keep)

    def combine(stacked: Stacked, weights: Tensor) -> Params:
        flat = torch.cat([t.reshape(len(t), math.prod(t.shape[1:])).to(torch.float64) for t in stacked.values()], dim=1)
        others = len(flat) - faulty - 2
        if others < 1:
            raise ConfigError(
                f"krum must see more than {faulty + 2} uploads for {faulty} faulty ones. Got {len(flat)}."
            )
        # Column 0 of the sorted distances is the upload's distance to itself. Sorting the chosen indices keeps the
        # order of summation independent of who was closest.
        distances = torch.cdist(flat, flat).square().sort(dim=1).values
        chosen = distances[:, 1 : others + 1].sum(1).argsort()[:keep].sort().values
        return {n: t[chosen].mean(dim=0) for n, t in stacked.items()}

    return Aggregator(f"krum({faulty}, {keep})", combine=combine, fewest=faulty + 3)


@takes_numbers
def private_mean(
    bound: float, noise: float, *, delta: float | None = None, noise_seed: int | None = None
) -> Aggregator:
    """(sum of displacements shortened to `bound` + N(0, (noise * bound)^2)) / expected cohort (DP-FedAvg).

    McMahan et al. (2018): client-level differential privacy towards everybody but the server. Weights are uniform, and
    whatever else clients would send is refused before training. The run's result says its epsilon at `delta` (by
    default 1e-5, or a tenth of one over the number of clients where that is less); `epsilon` says it beforehand.
    Noise and cohorts come from a key that the operating system draws and the server's store keeps.

    `noise_seed` is INSECURE and for tests: whoever knows it can subtract the noise.
    """
    require(is_number(bound) and bound > 0, "bound", "a number > 0", bound)
    require(is_number(noise) and noise > 0, "noise", "a number > 0", noise)
    require(delta is None or (is_number(delta) and 0 < delta < 1), "delta", "a number in (0, 1)", delta)
    require(noise_seed is None or is_count(noise_seed, 0), "noise_seed", "an int >= 0", noise_seed)
    words = f"{bound}, {noise}" + (f", delta={delta}" if delta is not None else "")
    if noise_seed is not None:
        words += f", INSECURE noise_seed={noise_seed}"
        warnings.warn(
            f"private_mean is INSECURE with noise_seed={noise_seed}: the noise can be predicted; for tests only",
            UserWarning,
            stacklevel=2,
        )
    return Aggregator(f"private_mean({words})", bound=bound, noise=noise, delta=delta, noise_seed=noise_seed)


AGGREGATORS: dict[str, Callable[..., Aggregator]] = {
    "median": median,
    "trimmed_mean": trimmed_mean,
    "norm_bounded": norm_bounded,
    "krum": krum,
    "private_mean": private_mean,
}
