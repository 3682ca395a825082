"""What becomes of a frame's feature columns: numbers, filled gaps, mean 0 and deviation 1; and again for later rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedtempo.data.categories import codes_of, in_order
from fedtempo.data.column_doubts import doubt, no_numbers, spelled_twice, strangest
from fedtempo.data.frame_columns import EMPTY, columns_of, missing_in, settled, words_of
from fedtempo.errors import DataError, shown, unknown

_LOG = logging.getLogger("fedtempo")
Strings = Literal["refuse", "one_hot", "codes"]
Missing = Literal["refuse", "zero", "mean"]
LARGEST = float(np.finfo(np.float32).max)
MISSING_WORD = "(missing)"
MOST_CATEGORIES = 1000
"""More different values than this make a column of names, not of categories."""


@dataclass(frozen=True)
class Feature:
    """How one column of a frame becomes numbers."""

    column: str
    kind: Literal["number", "one_hot", "codes"] = "number"
    values: tuple[str, ...] = ()
    """The texts of a column of categories, in the order of their features or codes."""

    @property
    def labels(self) -> list[str]:
        """The names of its features."""
        return [f"{self.column}={value}" for value in self.values] if self.kind == "one_hot" else [self.column]

    def numbers(self, values: np.ndarray, name: str) -> np.ndarray:
        """A settled column as features, shape (rows, features); a gap among numbers is NaN."""
        return _finite(self.column, values, name)[:, None] if self.kind == "number" else self._categories(values)

    def _categories(self, values: np.ndarray) -> np.ndarray:
        words = np.where(missing_in(values), MISSING_WORD, words_of(values))
        codes = codes_of(words, self.values)
        strange = words[codes < 0]
        if len(strange):
            raise unknown(f"column {self.column!r}: value", str(strange[0]), self.values)
        return np.eye(len(self.values))[codes] if self.kind == "one_hot" else codes[:, None].astype(np.float64)


@dataclass(frozen=True)
class Preparation:
    """What was done to a frame's rows before training: `x = (row - mean) / scale`, with `fill` in the gaps.

    The numbers are measured on the training rows of training clients. `rows` does the same to later rows, and exported
    models carry it as JSON (`as_dict`), or take rows as they were before it (`save_model(..., raw=True)`).
    """

    features: tuple[Feature, ...]
    fill: tuple[float, ...]
    """What stands in the gaps of each feature; NaN where gaps are refused."""
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    classes: tuple[str, ...] = ()
    """The names of the target's classes, in the order of the model's outputs."""

    @property
    def measured(self) -> bool:
        """Whether it holds numbers that were measured on rows: means, deviations."""
        filled = any(number != 0 and not np.isnan(number) for number in self.fill)
        return filled or any(self.mean) or any(number != 1 for number in self.scale)

    @property
    def labels(self) -> list[str]:
        """The names of the features, in the order of the model's inputs."""
        return [label for feature in self.features for label in feature.labels]

    def raw(self, frame: object, name: str = "frame") -> np.ndarray:
        """Rows of a frame as numbers, before gaps are filled and numbers are scaled; shape (rows, features)."""
        columns = columns_of(frame)
        for feature in self.features:
            if feature.column not in columns:
                raise unknown("column", feature.column, columns)
        pieces = [each.numbers(settled(columns[each.column], each.column, name), name) for each in self.features]
        return np.concatenate(pieces, axis=1)

    def rows(self, frame: object, name: str = "frame") -> np.ndarray:
        """Rows of a frame, ready for the model: of a new user, for example. A gap that nothing fills is an error."""
        found = self.of(self.raw(frame, name))
        gaps = np.isnan(found).any(axis=0)
        if gaps.any():
            label = self.labels[int(np.flatnonzero(gaps)[0])]
            raise DataError(f"column {label!r} of {name} must have a value in every row. Got a missing one.")
        return found

    def of(self, raw: np.ndarray) -> np.ndarray:
        """Numbers with their gaps filled, less the mean, by the scale."""
        filled = np.where(np.isnan(raw), np.array(self.fill), raw)
        return np.asarray((filled - np.array(self.mean)) / np.array(self.scale))

    def as_dict(self) -> dict[str, object]:
        """As plain data, for JSON: a fill that is NaN is None."""
        return {
            "features": [
                {"column": each.column, "kind": each.kind, **({"values": list(each.values)} if each.values else {})}
                for each in self.features
            ],
            "fill": [None if np.isnan(number) else number for number in self.fill],
            "mean": list(self.mean),
            "scale": list(self.scale),
            "classes": list(self.classes),
        }


def feature_of(
    column: str, values: np.ndarray, strings: Strings, missing: Missing, name: str, order: Sequence[str] | None = None
) -> Feature:
    """What becomes of a settled column: a number, or categories as the user said, in their order if they have one."""
    if missing == "refuse" and (strings != "refuse" or values.dtype != object):
        hint = ": give missing='mean' or missing='zero', or leave the column out"
        refuse_gaps(values, f"column {column!r} of {name}", hint)
    if values.dtype != object:
        _warn_of(column, values, "a number", name)
        return Feature(column)
    if strings == "refuse":
        what = "text" if order is None else "categories"
        slips = no_numbers(values)
        what += f": {_cells_without_numbers(slips, values)}" if slips else ""
        raise DataError(
            f"column {column!r} of {name} holds {what}. Say what becomes of it: strings='one_hot' (a 0/1 feature per "
            "value), strings='codes' (one integer feature), or leave it out of features."
        )
    words = np.unique(np.where(missing_in(values), MISSING_WORD, words_of(values)))
    if strings == "one_hot" and len(words) > MOST_CATEGORIES:
        rule = f"at most {MOST_CATEGORIES} different texts for one_hot"
        raise DataError(f"column {column!r} of {name} must have {rule}. Got {len(words)}.")
    slips = no_numbers(values)
    if slips:
        what = _cells_without_numbers(slips, values)
        _LOG.warning("column %r of %s is taken for text with %d values: %s", column, name, len(words), what)
    else:
        _warn_of(column, values, f"{len(words)} categories", name)
        warn_of_spellings(words, f"column {column!r} of {name}", "categories")
    return Feature(column, strings, tuple(in_order(words, order or ()).tolist()))


def _cells_without_numbers(slips: Sequence[str], values: np.ndarray) -> str:
    return f"{len(slips)} of its {len(values)} cells are no numbers, such as {shown(slips[0])}"


def _warn_of(column: str, values: np.ndarray, taken_for: str, name: str) -> None:
    reason = doubt(column, values)
    if reason:
        hint = "decimal=',' reads them" if "decimal commas" in reason else "list the columns to use in features"
        what = f"is taken for {taken_for}, but looks like {reason}: {hint}"
        _LOG.warning("column %r of %s %s", column, name, what)


def warn_of_spellings(words: np.ndarray, where: str, what: str) -> None:
    """Names are taken as they are; two that a reader takes for one are most likely a slip."""
    twice = spelled_twice(words.tolist())
    if twice:
        first, second = map(shown, twice)
        _LOG.warning("%s: %s and %s are taken for two %s; they are spelled almost alike", where, first, second, what)


def warn_of_nothing(words: np.ndarray, where: str) -> None:
    """A client or a class may be called NA, which Namibia is; more often it is a gap that a program wrote out."""
    found = next((word for word in words.tolist() if word in EMPTY), None)
    if found is not None:
        _LOG.warning("%s: %s is taken for a name; leave cells empty that are missing", where, shown(found))


def refuse_gaps(values: np.ndarray, what: str, hint: str = "") -> None:
    """Every row of a settled column must have a value."""
    gaps = int(missing_in(values).sum())
    if gaps:
        raise DataError(f"{what} must have a value in every row. Got {gaps} missing{hint}.")


def _finite(column: str, values: np.ndarray, name: str) -> np.ndarray:
    if values.dtype == object:
        raise DataError(f"column {column!r} of {name} must hold numbers. Got {shown(strangest(values))}.")
    numbers = values.astype(np.float64)
    wild = ~np.isnan(numbers) & ~(np.abs(numbers) <= LARGEST)
    if wild.any():
        rule = f"finite numbers of at most {LARGEST:.3g} in size"
        raise DataError(f"column {column!r} of {name} must hold {rule}. Got {numbers[wild][0]:g}.")
    return numbers
