"""What is tried: fields of an experiment file, each with choices or a range."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.config import ExperimentFile, parse, read_values
from fedtempo.config.experiment_file import found_beside
from fedtempo.config.pairs import put
from fedtempo.errors import ConfigError, is_count, is_number, require, unknown

RANGES = {"uniform": (False, False), "log": (True, False), "int": (False, True), "log_int": (True, True)}
"""Kinds of ranges: whether they are even on a logarithmic scale, and whether they are whole numbers."""
RULE = "a list of at least one value, or a range such as { log = [0.001, 1.0] }"


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included."""

    low: float
    high: float
    log: bool
    integer: bool

    def spread(self, points: int) -> tuple[object, ...]:
        """This many points, evenly (or evenly on a logarithmic scale), ends included."""
        space = np.geomspace if self.log else np.linspace
        values = [float(value) for value in space(self.low, self.high, points)]
        values[0], values[-1] = self.low, self.high
        return tuple(dict.fromkeys(round(value) if self.integer else value for value in values))


@dataclass(frozen=True)
class Dimension:
    """One field, or several that get the same value, and what it may be."""

    name: str
    choices: tuple[object, ...] = ()
    range: Range | None = None

    @property
    def fields(self) -> list[str]:
        """The fields that get the value."""
        return [field.strip() for field in self.name.split(",")]

    @property
    def samples(self) -> tuple[object, ...]:
        """Every choice, or the two ends of the range."""
        return self.choices if self.range is None else (self.range.low, self.range.high)

    def texts(self) -> list[str]:
        """The choices as text, which is how they are stored."""
        return [json.dumps(choice) for choice in self.choices]


@dataclass(frozen=True)
class Space:
    """An experiment's values, and the dimensions that are tried in it."""

    values: Mapping[str, Any]
    dimensions: tuple[Dimension, ...]

    def experiment(self, chosen: Mapping[str, object]) -> ExperimentFile:
        """The experiment with these values, by the names of the dimensions."""
        values = copy.deepcopy(dict(self.values))
        for dimension in self.dimensions:
            for field in dimension.fields:
                put(values, field, chosen[dimension.name], "tune")
        return parse(values)

    @property
    def size(self) -> int:
        """How many points the grid has."""
        return prod(len(dimension.choices) for dimension in self.dimensions)

    def points(self) -> Iterator[dict[str, object]]:
        """Every combination of choices, the last dimension fastest."""
        names = [dimension.name for dimension in self.dimensions]
        for values in itertools.product(*(dimension.choices for dimension in self.dimensions)):
            yield dict(zip(names, values, strict=True))

    def check(self) -> None:
        """Every choice and both ends of every range make an experiment, beside the first values of the others."""
        if not self.dimensions:
            raise ConfigError("tune must have at least one field to try. Got none: write [tune], or name a --grid.")
        first = {dimension.name: dimension.samples[0] for dimension in self.dimensions}
        for dimension in self.dimensions:
            for value in dimension.samples:
                try:
                    self.experiment({**first, dimension.name: value})
                except ConfigError as error:
                    raise ConfigError(f"tune {dimension.name!r} = {value!r}: {error}") from error


def dimensions_of(table: Mapping[str, object]) -> dict[str, Dimension]:
    """The dimensions of a `[tune]` table: `"algorithm.lr" = [0.1, 0.3]` or `"algorithm.lr" = { log = [0.01, 1.0] }`.

    >>> dimensions_of({"algorithm": {"lr": {"log": [0.01, 1.0], "points": 3}}})["algorithm.lr"].choices
    (0.01, 0.1, 1.0)
    """
    found = {}
    for name, value in _flat(table, ""):
        found[name] = _dimension(name, value)
    return found


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Dotted names: quoted ones stay, and tables inside tables, which is what unquoted ones are, are joined."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        nested = isinstance(value, Mapping) and bool(value) and not set(value) & {*RANGES, "points"}
        if nested and all(isinstance(inner, (Mapping, list)) for inner in value.values()):
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _dimension(name: str, value: Any) -> Dimension:
    if isinstance(value, list):
        texts = [json.dumps(choice, default=str) for choice in value]
        require(bool(value) and len(set(texts)) == len(texts), f"tune {name!r}", f"{RULE}, none of them twice", value)
        return Dimension(name, tuple(value))
    require(isinstance(value, Mapping) and bool(value), f"tune {name!r}", RULE, value)
    for key in value:
        if key not in (*RANGES, "points"):
            raise unknown(f"tune {name!r}: range", key, [*RANGES, "points"])
    kinds = [key for key in value if key in RANGES]
    require(len(kinds) == 1, f"tune {name!r}", f"one range, of {', '.join(RANGES)}", value)
    found = _range(name, kinds[0], value[kinds[0]])
    points = value.get("points")
    if points is None:
        return Dimension(name, range=found)
    require(is_count(points, 2), f"tune {name!r}: points", "an int >= 2", points)
    return Dimension(name, found.spread(points))


def _range(name: str, kind: str, ends: Any) -> Range:
    log, integer = RANGES[kind]
    pair = isinstance(ends, list) and len(ends) == 2 and all(is_number(end) for end in ends) and ends[0] < ends[1]
    require(pair, f"tune {name!r}: {kind}", "[low, high] with low < high", ends)
    require(not log or ends[0] > 0, f"tune {name!r}: {kind}", "above 0 on a logarithmic scale", ends)
    whole = all(isinstance(end, int) for end in ends)
    require(not integer or whole, f"tune {name!r}: {kind}", "two whole numbers", ends)
    return Range(ends[0], ends[1], log, integer) if integer else Range(float(ends[0]), float(ends[1]), log, integer)


def read_tables(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """An experiment file's values without `[tune]`, unchecked, and its `[tune]` table."""
    values: dict[str, Any] = found_beside(read_values(path), path.parent)
    table = values.pop("tune", {})
    require(isinstance(table, dict), "tune", "a table of fields to try", table)
    return values, table
