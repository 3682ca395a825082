"""Sections that a caller adds to a report: a heading, a text, a table, a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedtempo.training.pictures import RatePlan

Cell = str | float | int | None


@dataclass(frozen=True)
class Grid:
    """A table: column headings and rows of words and numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Bars:
    """One bar per name, such as the importance of each setting."""

    values: Mapping[str, float]
    unit: str = ""


@dataclass(frozen=True)
class Lines:
    """Curves through points (x, y), by name."""

    series: Mapping[str, Sequence[tuple[float, float]]]
    x: str
    y: str


@dataclass(frozen=True)
class Forest:
    """Differences to a reference with their intervals, row by row; `words` say what each decides."""

    rows: Sequence[ForestRow]
    x: str
    """What the differences are of."""
    margin: float = 0.0
    """Differences up to this one count as none; they are shaded."""


@dataclass(frozen=True)
class ForestRow:
    """One difference: its name, its value and interval (NaN where there is none), and the answer."""

    name: str
    value: float
    low: float
    high: float
    words: str


@dataclass(frozen=True)
class Rates:
    """The rates of one algorithm in small panels: over rounds, and step by step."""

    label: str
    plan: RatePlan


@dataclass(frozen=True)
class Section:
    """A part of the page; it stands right after the table of results."""

    heading: str
    text: str = ""
    table: Grid | None = None
    figure: Bars | Forest | Lines | Rates | None = None
