"""Columns that a frame's library declares to be categories, and the order that it gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Categories(NamedTuple):
    """The values that a column may have, in their order."""

    values: list[Any]
    ordered: bool
    """Whether the order means something."""

    @property
    def ranked(self) -> bool:
        """Whether the order is better than that of the alphabet: it is said, or it is that of numbers."""
        return self.ordered or not any(isinstance(value, str) for value in self.values)


def categories_of(column: object) -> Categories | None:
    """The categories of a pandas `Categorical`, a polars `Enum` or an Arrow dictionary; None of any other column."""
    kind = getattr(column, "dtype", None)
    declared = getattr(kind, "categories", None)
    if declared is not None:
        return Categories(list(declared), bool(getattr(kind, "ordered", True)))
    arrow: Any = column
    if not hasattr(getattr(column, "type", None), "ordered"):
        return None
    # Pieces of a column may each have their own dictionary.
    whole = arrow.unify_dictionaries() if hasattr(column, "unify_dictionaries") else arrow
    chunks = getattr(whole, "chunks", [whole])
    return Categories(chunks[0].dictionary.to_pylist() if chunks else [], bool(arrow.type.ordered))


def in_order(words: np.ndarray, order: Sequence[str]) -> np.ndarray:
    """Different words: those of `order` first, as it has them, then the others, sorted."""
    rank = {word: place for place, word in enumerate(order)}
    return np.array(sorted(words.tolist(), key=lambda word: (rank.get(word, len(rank)), word)))


def codes_of(words: np.ndarray, known: Sequence[str]) -> np.ndarray:
    """The place of each word among the known ones; -1 of a word that is not among them."""
    names = np.array(known)
    places = np.argsort(names)
    found = np.minimum(np.searchsorted(names, words, sorter=places), len(names) - 1)
    return np.where(names[places[found]] == words, places[found], -1)
