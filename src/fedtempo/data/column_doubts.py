"""What makes a column unlikely to be what it seems: ids among numbers, dates among texts, one name in two spellings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import numpy as np

from fedtempo.data.frame_columns import COMMA, EMPTY, NUMBER
from fedtempo.errors import shown

FEW = 0.05
"""The share of cells that are no numbers up to which a column of text looks like one of numbers."""
MANY = 20
"""From this many cells on, a column with hardly any value twice is one of ids, names or free text."""
MEASURED = 10
"""Different numbers from which on they are measured; fewer may be the names of grades."""
_NUMBERED_DAY = r"\d{4}(?P<a>[-/.])\d\d?(?P=a)\d\d?|\d\d?(?P<b>[./-])\d\d?(?P=b)\d{2,4}"
_NAMED_MONTH = r"\d\d?[. -]+[^\W\d]{3,9}[., -]+\d{2,4}|[^\W\d]{3,9}\.? \d\d?,? \d{4}"
_DATE = re.compile(rf"({_NUMBERED_DAY}|{_NAMED_MONTH})([T ].*)?")
_TIME = re.compile(r"\d\d?:\d\d(:\d\d(\.\d+)?)?( ?[AaPp]\.?[Mm]\.?)?")
_BY_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_ID = re.compile(r"(.*[^A-Za-z])?(id|mrn|uuid|guid)", re.IGNORECASE)
_CAMEL_ID = re.compile(r".*[a-z]I[dD]")


def doubt(column: str, values: np.ndarray) -> str | None:
    """What a settled column of features looks like that a model should not learn from; None if all seems well."""
    return no_categories(values) if values.dtype == object else no_measurement(column, values)


def no_numbers(values: np.ndarray) -> list[str]:
    """Cells of a column of text that are no numbers, where most others are: slips, or a sign for what is missing."""
    words, others = _words_and_others(values)
    if len(others) <= FEW * len(words):
        return others
    numbers = set(words) - set(others)
    return others if len(others) <= 0.5 * len(words) and len(numbers) >= MEASURED else []


def no_categories(values: np.ndarray) -> str | None:
    """Why the texts of a column are hardly categories: dates, decimal commas, names; None if they may be."""
    if no_numbers(values):
        return None  # numbers with a slip
    words = [str(value).strip() for value in values if isinstance(value, str) and value not in EMPTY]
    kinds = (
        (_DATE, "dates"),
        (_TIME, "times"),
        (_BY_THOUSANDS, "numbers with commas between thousands"),
        (COMMA, "numbers with decimal commas"),
    )
    for pattern, what in kinds:
        others = sum(pattern.fullmatch(word) is None for word in words)
        if words and others <= FEW * len(words):
            return f"{what}, such as {shown(words[0])}"
    different = len(set(words))
    if len(words) >= MANY and different > 0.5 * len(words):
        return f"names or free text, {different} different ones in {len(values)} rows"
    return None


def no_measurement(column: str, values: np.ndarray) -> str | None:
    """Why whole numbers are hardly a measurement: ids, numbers of rows, dates such as 20240131; None if they may be."""
    if values.dtype.kind not in "iuf":
        return None
    known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if len(known) < MANY or not np.isfinite(known).all() or (known != np.floor(known)).any():
        return None
    different = np.unique(known)
    if len(different) > 1 and all(map(_is_day, different.tolist())):
        return f"dates, such as {int(known[0])}"
    # Numbers without a gap, or in the order of the rows, each in one row: measurements repeat, lie apart, are mixed.
    span, in_order = different[-1] - different[0] + 1, np.array_equal(different, known)
    once = len(different) == len(known)
    if (once and (span == len(known) or (in_order and span <= 2 * len(known)))) or (
        _says_id(column) and len(different) >= MANY
    ):
        return f"ids, {len(different)} different ones in {len(values)} rows"
    return None


def spelled_twice(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that differ in nothing but capitals, blanks or how accents are stored; None if there are none."""
    seen: dict[str, str] = {}
    for name in names:
        plain = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        other = seen.setdefault(plain, name)
        if other != name:
            return other, name
    return None


def strangest(values: np.ndarray) -> object:
    """The first cell of a column of text that is no number; the first text where all could be numbers."""
    words, others = _words_and_others(values)
    return next(iter([*others, *words, *values]))


def _words_and_others(values: np.ndarray) -> tuple[list[str], list[str]]:
    """The texts of a column, and those of them that are no numbers."""
    words = [value for value in values if isinstance(value, str) and value not in EMPTY]
    return words, [word for word in words if NUMBER.fullmatch(word) is None]


def _says_id(column: str) -> bool:
    """Whether the name ends in a word such as id: patient_id, Patient ID, patientId; not paid or grid."""
    return bool(_ID.fullmatch(column.strip()) or _CAMEL_ID.fullmatch(column.strip()))


def _is_day(number: float) -> bool:
    """Whether a number is a day of our time, written 20240131."""
    year, month, day = int(number) // 10000, int(number) // 100 % 100, int(number) % 100
    return 1900 <= year <= 2100 and 1 <= month <= 12 and 1 <= day <= 31
