"""What a private mean guarantees: epsilon at a delta, under the adjacency and the sampling that a run really has.

Add-remove adjacency: two sets of clients are neighbours if one of them has one client more. An upload is at most
`bound` long, so the sums differ by at most the bound. Replace-one adjacency: two sets are neighbours if one client has
other data; the sums differ by at most twice the bound. A cohort drawn client by client (`cohort.bernoulli`) has a
random size, and is accounted under add-remove. A cohort of fixed size is accounted under replace-one.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, get_args

import numpy as np

from fedtempo.errors import is_count, is_number, require
from fedtempo.support.extras import library
from fedtempo.support.json_text import JsonTable

Sampling = Literal["poisson", "fixed-size", "none"]
Adjacency = Literal["add-remove", "replace-one"]
Accountant = Literal["rdp", "prv"]
_ADJACENCY: dict[str, tuple[Adjacency, ...]] = {
    "poisson": ("add-remove",),
    "fixed-size": ("replace-one",),
    "none": ("replace-one", "add-remove"),
}
"""Which adjacency each way of sampling has an accountant for, the usual one first."""
_WORDS = {"poisson": "Poisson sampling", "fixed-size": "sampling without replacement", "none": "no sampling"}
FIXED_SIZE_ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(11, 64), *(80, 96, 128, 192, 256))
_ORDERS = [1 + tenth / 10 for tenth in range(1, 100)] + list(range(11, 257)) + [384, 512, 1024]


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy of a client: (epsilon, delta), and what it rests on."""

    epsilon: float | None
    """Infinite where the noise can be predicted; None where no accountant is installed."""
    delta: float
    adjacency: Adjacency
    sampling: Sampling
    accountant: str
    noise: float
    rounds: int
    """Means that are charged: those in which one client can take part."""
    rates: tuple[tuple[float, int], ...]
    """Shares of the clients that take part, each with its number of rounds."""
    secure: bool = True

    def __str__(self) -> str:
        if not self.secure:
            return "INSECURE: noise_seed was given, so the noise can be predicted and nothing is private"
        if self.epsilon is None:
            return f"not accounted ({self.accountant})"
        shares = ", ".join(f"{100 * rate:g} % of clients in {count} rounds" for rate, count in self.rates)
        return (
            f"epsilon {self.epsilon:.3g} at delta {self.delta:g}: {self.adjacency} adjacency of clients, "
            f"{_WORDS[self.sampling]}, {shares}; noise {self.noise:g}; {self.accountant}"
        )

    def record(self) -> JsonTable:
        """The guarantee as plain data; an infinite epsilon is a word, for JSON has none."""
        unbounded = self.epsilon is not None and math.isinf(self.epsilon)
        return {
            **vars(self),
            "rates": [list(pair) for pair in self.rates],
            "epsilon": "infinite" if unbounded else self.epsilon,
            "words": str(self),
        }


def epsilon(
    noise: float,
    rounds: int,
    rate: float,
    delta: float,
    *,
    sampling: Sampling = "poisson",
    adjacency: Adjacency | None = None,
    accountant: Accountant = "rdp",
) -> float:
    """The epsilon of `rounds` private means at this delta, where a share `rate` of the clients takes part in each.

    `noise` is that of `private_mean`: the deviation on the sum over the bound. Poisson sampling: Opacus's Renyi or PRV
    accountant. Cohorts of fixed size: Renyi divergences of sampling without replacement, from the tight analysis of
    Balle, Barthe and Gaboardi (2018); see `without_replacement`. Without sampling (everybody takes part, or others can
    know who does) every round counts in full. Needs the extra `privacy`.
    """
    require(is_number(noise) and noise > 0, "noise", "a number > 0", noise)
    require(is_count(rounds), "rounds", "an int >= 1", rounds)
    require(is_number(rate) and 0 < rate <= 1, "rate", "a number in (0, 1]", rate)
    require(is_number(delta) and 0 < delta < 1, "delta", "a number in (0, 1)", delta)
    require(sampling in get_args(Sampling), "sampling", " or ".join(map(repr, get_args(Sampling))), sampling)
    require(accountant in get_args(Accountant), "accountant", "'rdp' or 'prv'", accountant)
    known = _ADJACENCY[sampling]
    adjacency = known[0] if adjacency is None else adjacency
    require(adjacency in known, "adjacency", " or ".join(map(repr, known)) + f" for {sampling!r} sampling", adjacency)
    require(sampling != "none" or rate == 1, "rate", "1 without sampling", rate)
    return spent(noise, ((rate, rounds),), delta, sampling, adjacency, accountant)


@lru_cache(maxsize=256)
def spent(
    noise: float,
    rates: tuple[tuple[float, int], ...],
    delta: float,
    sampling: Sampling,
    adjacency: Adjacency,
    accountant: Accountant = "rdp",
) -> float:
    """The epsilon of rounds that differ in how many clients take part."""
    multiplier = noise if adjacency == "add-remove" else noise / 2
    if accountant == "prv":
        require(sampling != "fixed-size", "accountant", "'rdp' for 'fixed-size' sampling", accountant)
        return _prv(multiplier, rates, delta)
    analysis = _opacus("accountants.analysis.rdp")
    orders = list(FIXED_SIZE_ORDERS) if sampling == "fixed-size" else _ORDERS
    total = np.zeros(len(orders))
    for rate, rounds in rates:
        if sampling == "fixed-size":
            total += rounds * np.array(without_replacement(rate, multiplier))
        else:
            total += analysis.compute_rdp(q=rate, noise_multiplier=multiplier, steps=rounds, orders=orders)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "the optimal order is the largest": then the bound is loose, never wrong
        value, _ = analysis.get_privacy_spent(orders=orders, rdp=total, delta=delta)
    return float(value)


@lru_cache(maxsize=256)
def without_replacement(rate: float, multiplier: float) -> tuple[float, ...]:
    """Renyi divergences of one Gaussian mean over a cohort drawn without replacement, at `FIXED_SIZE_ORDERS`.

    `multiplier` is s, the deviation over the sensitivity under replacement; `rate` is gamma = m / n. By Balle, Barthe
    and Gaboardi (2018) two neighbours, whichever comes first, are at any epsilon >= 0 told apart no better than
    M = (1 - gamma) Q + gamma N(1, s^2) is from Q = N(0, s^2). A divergence of order a is an integral over all epsilons;
    the negative ones are the positive ones of the two neighbours in the other order. With u = M / Q that gives
    exp((a - 1) divergence) <= 1 + E_Q[(u^(a-1) - 1) (u - u^(1-a)) where u > 1].
    Sampling never hurts, so the divergence without it is a bound as well. Below a multiplier of 1/4, where no epsilon
    is worth stating, it is the only one that is worked out.
    """
    bounds = []
    for order in FIXED_SIZE_ORDERS:
        plain = order / (2 * multiplier**2)
        bounds.append(plain if multiplier < 0.25 else min(plain, _sampled_divergence(rate, multiplier, order)))
    return tuple(bounds)


def _sampled_divergence(rate: float, s: float, order: float) -> float:
    # u bends over a length of s^2, its weight over s; at u = 1 value and slope are 0, so a plain sum is exact enough.
    width = min(s, s * s) / 16
    x = np.arange(0.5, order + 14 * s, width)
    weight = -x * x / (2 * s * s) - math.log(s * math.sqrt(2 * math.pi)) + math.log(width)
    stays = math.log1p(-rate) if rate < 1 else -math.inf
    u = np.maximum(np.logaddexp(stays, math.log(rate) + (2 * x - 1) / (2 * s * s)), 0.0)
    with np.errstate(divide="ignore"):  # log 0 where u is 1
        gain = order * u + np.log(-np.expm1(-(order - 1) * u)) + np.log(-np.expm1(-order * u))
    return float(np.logaddexp(0.0, np.logaddexp.reduce(weight + gain))) / (order - 1)


def accountant_name() -> str | None:
    """Opacus with its version, or None where it is not installed."""
    try:
        return f"Opacus {version('opacus')}"
    except PackageNotFoundError:
        return None


def _prv(multiplier: float, rates: tuple[tuple[float, int], ...], delta: float) -> float:
    accountant = _opacus("accountants").PRVAccountant()
    accountant.history = [(multiplier, rate, rounds) for rate, rounds in rates]
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(accountant.get_epsilon(delta))


def _opacus(module: str) -> Any:
    return library(f"opacus.{module}", "privacy", "epsilon")
