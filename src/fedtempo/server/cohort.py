"""Who takes part in a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedtempo.errors import is_count, is_int, is_number, require, takes_numbers, wrong
from fedtempo.randomness import generator
from fedtempo.schedules import Now, Schedule, as_schedule, whole_number
from fedtempo.server.privacy_accounting import Sampling

Size = int | float | Schedule | Callable[[Now], float]
"""How many clients: a number, a fraction of all, or a schedule of numbers."""


class Chooser(Protocol):
    """Chooses clients; `over` asks for that share more than needed."""

    def __call__(self, clients: np.ndarray, now: Now, seed: int, over: float = 0.0) -> np.ndarray:
        """The chosen clients, in ascending order."""
        ...


@dataclass(frozen=True)
class Cohort:
    """A rule for choosing clients, and how many it is expected to choose.

    A rule of your own has a name, the expected number given (now, clients), and a function that chooses. It draws from
    the seed and the round alone, so that a run repeats:

    >>> def choose(clients, now, seed, over=0.0):  # three neighbours
    ...     first = np.random.default_rng([seed, now.round]).integers(len(clients))
    ...     return np.take(clients, range(first, first + 3), mode="wrap")
    >>> neighbours = Cohort("neighbours", lambda now, clients: 3.0, choose)
    >>> neighbours.members(np.arange(9), Now(round=1), seed=0)
    array([4, 5, 6])
    """

    description: str
    expected: Callable[[Now, int], float] = field(compare=False, repr=False)
    choose: Chooser = field(compare=False, repr=False)
    sampling: Sampling = "none"
    """How a private mean's accountant may count it: "none" where others can know who takes part."""
    lists: tuple[tuple[int, ...], ...] = field(default=(), compare=False, repr=False)
    """The cohorts that were written down, if they were."""

    @property
    def is_ours(self) -> bool:
        """Whether the rule is the library's, which needs no check."""
        return getattr(self.choose, "__module__", "") == __name__

    def members(self, clients: np.ndarray, now: Now, seed: int, over: float = 0.0) -> np.ndarray:
        """The chosen ones of these clients, in ascending order; a rule that chooses anything else is refused."""
        chosen = self.choose(clients, now, seed, over)
        if self.is_ours:
            return chosen
        numbers = np.sort(np.asarray(chosen))
        rule = "an array of different numbers of the clients that it is given"
        holds = numbers.ndim == 1 and (numbers.dtype.kind in "iu" or not len(numbers))
        if holds and len(numbers):
            places = np.searchsorted(clients, numbers)
            holds = bool((np.take(clients, places, mode="clip") == numbers).all() and (np.diff(numbers) > 0).all())
        require(holds, f"what the cohort {self.description!r} chooses", rule, chosen)
        return numbers.astype(np.int64)


@takes_numbers
def uniform(size: Size) -> Cohort:
    """Clients drawn without replacement: an int, a fraction of all, or a schedule of numbers of clients.

    >>> uniform(3).members(np.arange(9), Now(round=0), seed=0)
    array([0, 4, 8])
    """
    size = _size(size)
    count = _counting(size)

    def choose(clients: np.ndarray, now: Now, seed: int, over: float = 0.0) -> np.ndarray:
        picks = generator(seed, "cohort", now.round).choice(
            len(clients), _asked(count, clients, now, over), replace=False
        )
        return np.asarray(clients[np.sort(picks)])

    return Cohort(repr(size), lambda now, clients: float(count(now, clients)), choose, "fixed-size")


@takes_numbers
def by_samples(size: Size, samples: Sequence[int] | np.ndarray) -> Cohort:
    """Clients drawn one after the other without replacement, each in proportion to its training rows.

    The code of q-FFL and of Ditto draws so, and counts all clients equally in the mean. `samples` has the rows of every
    client: `data.sizes()`. In a file: `cohort = { by_samples = 10 }`. Clients without rows are never drawn.

    >>> by_samples(1, [0, 5, 0]).members(np.arange(3), Now(), seed=0)
    array([1])
    """
    size = _size(size)
    count, rows = _counting(size), np.asarray(samples)
    holds = rows.ndim == 1 and rows.dtype.kind in "iu" and bool((rows >= 0).all()) and bool(rows.any())
    require(holds, "samples", "the number of training rows of every client", samples)

    def choose(clients: np.ndarray, now: Now, seed: int, over: float = 0.0) -> np.ndarray:
        require(len(rows) > clients.max(initial=0), "samples", f"numbers for clients 0 to {clients.max()}", len(rows))
        weights = rows[clients]
        wanted = min(_asked(count, clients, now, over), int((weights > 0).sum()))
        if not wanted:
            return np.asarray(clients[:0])
        picks = generator(seed, "cohort", now.round).choice(
            len(clients), wanted, replace=False, p=weights / weights.sum()
        )
        return np.asarray(clients[np.sort(picks)])

    return Cohort(f"by_samples({size!r})", lambda now, clients: float(count(now, clients)), choose)


def _size(size: Size) -> int | float | Schedule:
    """A function of `now` is a schedule here as everywhere else."""
    return as_schedule(size) if callable(size) else size


def _counting(size: int | float | Schedule) -> Callable[[Now, int], int]:
    """(position, number of clients) -> how many of them are asked; an error where it cannot be so many."""
    if not isinstance(size, Schedule):
        fraction = isinstance(size, float) and 0 < size <= 1
        require(is_count(size) or fraction, "cohort", "an int >= 1 or a fraction in (0, 1]", size)

    def count(now: Now, clients: int) -> int:
        if isinstance(size, Schedule):
            wanted = whole_number(size.at(now))
        else:
            wanted = max(1, round(size * clients)) if isinstance(size, float) else size
        if not 1 <= wanted <= clients:
            raise wrong("cohort", f"an int in [1, {clients}] (the number of training clients)", wanted)
        return wanted

    return count


def _asked(count: Callable[[Now, int], int], clients: np.ndarray, now: Now, over: float) -> int:
    # The small number undoes rounding: 10 * 1.1 is 11.000000000000002 in floating point and means 11.
    # A fraction is one of all clients, also where only some of them are there to choose from.
    return min(len(clients), math.ceil(count(now, max(now.clients, len(clients))) * (1 + over) - 1e-9))


@takes_numbers
def bernoulli(probability: float) -> Cohort:
    """Each client takes part on its own with this probability (PFLEGO, section 3.2.1); I * rho are expected.

    >>> [len(bernoulli(0.3).members(np.arange(9), Now(round=r), seed=0)) for r in range(4)]
    [1, 2, 2, 2]
    """
    require(is_number(probability) and 0 < probability <= 1, "probability", "a number in (0, 1]", probability)

    def choose(clients: np.ndarray, now: Now, seed: int, over: float = 0.0) -> np.ndarray:
        return np.asarray(clients[generator(seed, "cohort", now.round).random(len(clients)) < probability])

    return Cohort(f"bernoulli({probability})", lambda now, clients: probability * clients, choose, "poisson")


def fixed(cohorts: Sequence[Sequence[int]]) -> Cohort:
    """Given cohorts, one list per round; after the last list it starts again from the first.

    >>> fixed([[0, 1], [2]]).members(np.arange(9), Now(round=2), seed=0)
    array([0, 1])
    """
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
    return Cohort(f"fixed {lists}", lambda now, clients: float(len(members(now))), choose, lists=written)


def _members(cohort: object) -> list[int]:
    """A cohort's clients in ascending order; nothing where it is not a list of client numbers."""
    if not isinstance(cohort, (list, tuple, np.ndarray)):
        return []
    numbers = all(is_int(c) for c in cohort)
    return sorted(int(c) for c in cohort) if numbers else []


def as_cohort(
    cohort: int | float | Schedule | Callable[[Now], float] | Cohort, cohorts: Sequence[Sequence[int]] | None
) -> Cohort:
    """The rule meant by `cohort=` and `cohorts=` of an experiment."""
    if cohorts is not None:
        return fixed(cohorts)
    if isinstance(cohort, Cohort):
        return cohort
    return uniform(cohort)
