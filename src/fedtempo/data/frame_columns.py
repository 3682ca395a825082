"""The columns of frames and of CSV files as arrays: text, booleans, whole numbers, or numbers with NaN for gaps."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.data.categories import categories_of
from fedtempo.errors import DataError, first_line, require, shown
from fedtempo.support.room import require_room

Columns = dict[str, np.ndarray]
EMPTY = ("", "NA", "N/A", "#N/A", "n/a", "na", "NaN", "nan", "null", "NULL", "None")
"""Cells that stand for a missing number. In a column of text only an empty cell is missing: NA may be a name."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?\d+")
COMMA = re.compile(r"[+-]?\d+,\d+")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")


PER_CELL = 70
"""Bytes of a cell of a CSV file while it is read: text, its place in a row and in a column."""


def columns_of(frame: Any) -> Columns:
    """Every column of a frame, whatever library it is of."""
    found = {str(name): _column(frame[name]) for name in _names(frame)}
    for name, values in found.items():
        if values.ndim != 1:
            raise DataError(f"column {name!r} must hold one value per row. Got an array of shape {values.shape}.")
    lengths = {name: len(values) for name, values in found.items()}
    if not found or len(set(lengths.values())) != 1 or not next(iter(lengths.values())):
        raise DataError(f"frame must have rows, and columns of one length. Got {lengths}.")
    return found


def orders_of(frame: object) -> dict[str, list[str]]:
    """The order of the categories of every column that has one."""
    columns: Any = frame
    found = {str(name): categories_of(columns[name]) for name in _names(frame)}
    return {name: [_word(value) for value in each.values] for name, each in found.items() if each and each.ranked}


def _names(frame: Any) -> list[Any]:
    if hasattr(frame, "collect") and hasattr(frame, "collect_schema"):
        raise DataError("frame must hold its rows. Got a lazy one: give frame.collect().")
    names = frame.keys() if isinstance(frame, Mapping) else getattr(frame, "column_names", None)
    names = getattr(frame, "columns", None) if names is None else names
    if names is None or not hasattr(frame, "__getitem__"):
        raise DataError(f"frame must have columns by name (pandas, polars, Arrow, a dict). Got {type(frame).__name__}.")
    listed = list(names)
    twice = sorted(name for name, count in Counter(map(str, listed)).items() if count > 1)
    if twice:
        raise DataError(f"frame must have different column names. Got {twice[0]!r} more than once.")
    return listed


def _column(column: Any) -> np.ndarray:
    values = _array(column)
    # Categories are names, also where they are numbers: the ward 10 is not five times the ward 2.
    return values if categories_of(column) is None else _objects([None if _is_missing(v) else _word(v) for v in values])


def _array(column: Any) -> np.ndarray:
    """A column as numpy has it, with what is missing still missing."""
    if isinstance(column, np.ma.MaskedArray):
        # Under a mask stands any number at all; as objects, its cells can say that they are none.
        hidden = np.ma.getmaskarray(column)
        gaps = np.full(column.shape, None, dtype=object)
        return np.where(hidden, gaps, column.data) if hidden.any() else np.asarray(column.data)
    if hasattr(column, "to_numpy"):
        try:
            return np.asarray(column.to_numpy())
        except (TypeError, ValueError):  # an Arrow array of text or with missing values has to be copied
            return np.asarray(column.to_numpy(zero_copy_only=False))
    try:
        found = np.asarray(column)
    except ValueError:  # lists of different lengths
        return _objects(column)
    # Of a list that has text in it numpy makes text throughout: NaN would become the word "nan".
    made_text = found.dtype.kind in "US" and found.ndim == 1 and not isinstance(column, np.ndarray)
    return _objects(column) if made_text else found


def _objects(column: Any) -> np.ndarray:
    found = np.empty(len(column), dtype=object)
    found[:] = list(column)
    return found


def read_csv(path: Path, names: Collection[str] = (), separator: str = ",", decimal: str = ".") -> Columns:
    """The columns of a CSV file; those in `names` stay as they are written, so that 007 and 7 are two clients."""
    require(separator in (",", ";", "\t", "|"), "separator", "',', ';', a tab or '|'", separator)
    require(decimal in (".", ","), "decimal", "'.' or ','", decimal)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=separator)
            header = next(reader, [])
            require_room(_lines(path) * len(header) * PER_CELL, path.name)
            rows = [(reader.line_num, row) for row in reader if row]  # an empty line is no row
    except (UnicodeDecodeError, csv.Error) as error:
        hint = "in Excel, save it as 'CSV UTF-8'" if isinstance(error, UnicodeDecodeError) else "is it a CSV file?"
        raise DataError(f"{path.name} must be CSV in UTF-8 ({hint}): {first_line(error)}.") from None
    except OSError as error:
        raise DataError(f"{path} must be a file that can be read: {error.strerror}.") from None
    other = next((mark for mark in ",;\t|" if len(header) == 1 and mark in header[0]), None)
    if other is not None:
        rule = f"{separator!r} between its cells, or separator={other!r} must be given"
        raise DataError(f"{path.name} must have {rule}. Got the header {shown(header[0])}.")
    if len(set(header)) != len(header) or not header:
        raise DataError(f"{path.name} must start with a line of different column names. Got {shown(header)}.")
    if not rows:
        raise DataError(f"{path.name} must have rows below its line of column names. Got none.")
    for number, row in rows:
        if len(row) != len(header):
            raise DataError(f"{path.name}, line {number} must have {len(header)} cells. Got {len(row)}.")
    cells = {column: [row[index] for _, row in rows] for index, column in enumerate(header)}
    return {column: _words(found) if column in names else _typed(found, decimal) for column, found in cells.items()}


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return 1 + sum(piece.count(b"\n") for piece in iter(partial(file.read, 1 << 20), b""))


def _words(cells: list[str]) -> np.ndarray:
    """Cells as text without the blanks around it; empty ones are missing."""
    return np.array([cell.strip() or None for cell in cells], dtype=object)


def _typed(cells: list[str], decimal: str = ".") -> np.ndarray:
    """Whole numbers, other numbers or text, whichever all cells are. Python's own 1_000 is text here."""
    if decimal == ",":
        return _with_commas(cells)
    stripped = [cell.strip() for cell in cells]
    if all(_WHOLE.fullmatch(cell) for cell in stripped):
        try:
            return np.array([int(cell) for cell in stripped], dtype=np.int64)
        except (OverflowError, ValueError):  # more digits than 64 bits hold, or than Python reads
            pass
    if any(cell not in EMPTY for cell in stripped) and all(
        cell in EMPTY or NUMBER.fullmatch(cell) for cell in stripped
    ):
        return np.array([np.nan if cell in EMPTY else float(cell) for cell in stripped])
    return _words(cells)


def _with_commas(cells: list[str]) -> np.ndarray:
    """Cells where 4,5 is a number. A column of 59.1 is one with points; one of 1.234 alone may mean thousands: text."""
    stripped = [cell.strip() for cell in cells]
    if any(COMMA.fullmatch(cell) for cell in stripped):
        has_points = any("." in cell and NUMBER.fullmatch(cell) for cell in stripped)
        found = _typed([cell.replace(",", ".") if COMMA.fullmatch(cell) else cell for cell in stripped])
        return _words(cells) if has_points or found.dtype == object else found
    pointed = [cell for cell in stripped if "." in cell and NUMBER.fullmatch(cell)]
    return _words(cells) if pointed and all(map(_THOUSANDS.fullmatch, pointed)) else _typed(cells)


def settled(values: np.ndarray, column: str, name: str) -> np.ndarray:
    """The column as text (objects, None where missing), booleans, whole numbers or floats (NaN where missing)."""
    kind = values.dtype.kind
    if kind in "biuf":
        return values
    if kind in "US":
        return values.astype(object)
    if kind in "mM":
        raise DataError(
            f"column {column!r} of {name} must be numbers, booleans or text. Got dates: turn them into numbers."
        )
    if kind == "O":
        missing = np.array([_is_missing(value) for value in values], dtype=bool)
        present = [value for value, gap in zip(values, missing, strict=True) if not gap]
        if any(isinstance(value, (str, bytes)) for value in present):
            return np.array([None if gap else value for value, gap in zip(values, missing, strict=True)], dtype=object)
        try:
            return _numbers(present, missing)
        except (TypeError, ValueError):
            pass
    what = next((type(value).__name__ for value in values if not _is_missing(value)), str(values.dtype))
    raise DataError(f"column {column!r} of {name} must be numbers, booleans or text. Got {what}.")


def _numbers(present: list[Any], missing: np.ndarray) -> np.ndarray:
    """Numbers that came as objects: booleans, whole numbers, or floats with NaN in the gaps."""
    if not missing.any() and all(isinstance(value, (bool, np.bool_)) for value in present):
        return np.array(present, dtype=bool)
    if not missing.any() and all(isinstance(value, (int, np.integer)) for value in present):
        try:
            return np.array(present, dtype=np.int64)
        except OverflowError:
            pass
    found = np.full(len(missing), np.nan)
    found[~missing] = [float(value) for value in present]
    return found


def _is_missing(value: Any) -> bool:
    """None, NaN, and what pandas has for them: NaT is not equal to itself, NA has no truth value at all."""
    if value is None:
        return True
    try:
        return bool(np.ndim(value) == 0 and value != value)  # noqa: PLR0124 - only NaN differs from itself
    except TypeError:  # pandas.NA
        return True
    except ValueError:  # a list of lists
        return False


def missing_in(values: np.ndarray) -> np.ndarray:
    """Which rows of a settled column have no value."""
    if values.dtype == object:
        return np.array([value is None for value in values], dtype=bool)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=bool)


def words_of(values: np.ndarray) -> np.ndarray:
    """Every value of a settled column as a name; 3 and 3.0 are the same."""
    return np.array([_word(value) for value in values])


def _word(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value)
