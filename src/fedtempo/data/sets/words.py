"""What text data sets of users share: a vocabulary, and the latest rows of each user for testing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from fedtempo.data.parts import TEST, TRAIN


def most_used(names: Iterable[str], count: int) -> dict[str, int]:
    """The `count` most used names with their places, the most used first; equally used ones by the alphabet.

    >>> most_used(["b", "a", "c", "b"], 2)
    {'b': 0, 'a': 1}
    """
    ranked = sorted(Counter(names).items(), key=lambda pair: (-pair[1], pair[0]))
    return {name: place for place, (name, _) in enumerate(ranked[:count])}


def latest_for_testing(users: np.ndarray, test: float) -> np.ndarray:
    """The part of each row: the last share of every user's rows is for testing, the first row always for training.

    Rows come user after user, each user's in the order of time.
    """
    _, starts, counts = np.unique(users, return_index=True, return_counts=True)
    place = np.arange(len(users)) - np.repeat(starts, counts)
    tests = np.minimum(np.round(counts * test), counts - 1)
    return np.where(place >= np.repeat(counts - tests, counts), TEST, TRAIN).astype(np.int8)
