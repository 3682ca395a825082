"""Who takes part in a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedtempo.errors import is_count, is_int, is_number, require, takes_numbers
from fedtempo.randomness import generator
from fedtempo.schedules import Now, Schedule, whole_number
from fedtempo.server.privacy_accounting import Sampling


class Chooser(Protocol):
    """Chooses clients; `over` asks for that share more than needed."""

    def __call__(self, clients: np.ndarray, now: Now, seed: int, over: float = 0.0) -> np.ndarray:
        """The chosen clients, in ascending order."""
        ...


FIXED = "fixed"


@dataclass(frozen=True)
class Cohort:
    """A rule for choosing clients, and how many it is expected to choose."""

    description: str
    expected: Callable[[Now, int], float] = field(compare=False, repr=False)
    choose: Chooser = field(compare=False, repr=False)
    sampling: Sampling = "none"
    """How a private mean's accountant may count it: "none" where others can know who takes part."""
    lists: tuple[tuple[int, ...], ...] = field(default=(), compare=False, repr=False)
    """The cohorts that were written down, if they were."""


@takes_numbers
def uniform(size: int | float | Schedule) -> Cohort:
    """Clients drawn without replacement: an int, a fraction of all, or a schedule of numbers of clients."""
    if not isinstance(size, Schedule):
        fraction = isinstance(size, float) and 0 < size <= 1
        require(is_count(size) or fraction, "cohort", "an int >= 1 or a fraction in (0, 1]", size)

    def count(now: Now, clients: int) -> int:
        if isinstance(size, Schedule):
            wanted = whole_number(size.at(now))
        else:
            wanted = max(1, round(size * clients)) if isinstance(size, float) else size
        require(1 <= wanted <= clients, "cohort", f"an int in [1, {clients}] (the number of training clients)", wanted)
        return wanted

    def choose(clients: np.ndarray, now: Now, seed: int, over: float = 0.0) -> np.ndarray:
        # The small number undoes rounding: 10 * 1.1 is 11.000000000000002 in floating point and means 11.
        # A fraction is one of all clients, also where only some of them are there to choose from.
        wanted = min(len(clients), math.ceil(count(now, max(now.clients, len(clients))) * (1 + over) - 1e-9))
        picks = generator(seed, "cohort", now.round).choice(len(clients), wanted, replace=False)
        return np.asarray(clients[np.sort(picks)])

    return Cohort(repr(size), lambda now, clients: float(count(now, clients)), choose, "fixed-size")


@takes_numbers
def bernoulli(probability: float) -> Cohort:
    """Each client takes part on its own with this probability (PFLEGO, section 3.2.1); I * rho are expected."""
    require(is_number(probability) and 0 < probability <= 1, "probability", "a number in (0, 1]", probability)

    def choose(clients: np.ndarray, now: Now, seed: int, over: float = 0.0) -> np.ndarray:
        return np.asarray(clients[generator(seed, "cohort", now.round).random(len(clients)) < probability])

    return Cohort(f"bernoulli({probability})", lambda now, clients: probability * clients, choose, "poisson")


def fixed(cohorts: Sequence[Sequence[int]]) -> Cohort:
    """Given cohorts, one list per round; after the last list it starts again from the first."""
    lists = [_members(cohort) for cohort in cohorts] if isinstance(cohorts, (list, tuple, np.ndarray)) else []
    require(bool(lists) and all(lists), "cohorts", "one or more lists of client numbers", cohorts)

    def members(now: Now) -> list[int]:
        return lists[now.round % len(lists)]

    def choose(clients: np.ndarray, now: Now, seed: int, over: float = 0.0) -> np.ndarray:
        chosen = members(now)
        others = sorted(set(chosen) - set(clients.tolist()))
        require(not others, "cohorts", "lists of training clients", others)
        require(len(set(chosen)) == len(chosen), "cohorts", "lists that name each client once", chosen)
        return np.array(chosen, dtype=np.int64)

    written = tuple(map(tuple, lists))
    return Cohort(f"{FIXED} {lists}", lambda now, clients: float(len(members(now))), choose, lists=written)


def _members(cohort: object) -> list[int]:
    """A cohort's clients in ascending order; nothing where it is not a list of client numbers."""
    if not isinstance(cohort, (list, tuple, np.ndarray)):
        return []
    numbers = all(is_int(c) for c in cohort)
    return sorted(int(c) for c in cohort) if numbers else []


def as_cohort(cohort: int | float | Schedule | Cohort, cohorts: Sequence[Sequence[int]] | None) -> Cohort:
    """The rule meant by `cohort=` and `cohorts=` of an experiment."""
    if cohorts is not None:
        return fixed(cohorts)
    return cohort if isinstance(cohort, Cohort) else uniform(cohort)
