"""Tables of mixed columns with a client column: a pandas or polars frame, an Arrow table, a CSV or a Parquet file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.data.parts import PARTS
from fedtempo.data.table import Table
from fedtempo.errors import DataError, first_line, require, unknown

Strings = Literal["refuse", "one_hot", "codes"]
Missing = Literal["refuse", "zero", "mean"]
MOST_CATEGORIES = 1000
"""More different values than this make a column of names, not of categories."""


def from_frame(
    frame: object,
    *,
    client: str,
    target: str,
    features: Sequence[str] | None = None,
    part: str | None = None,
    strings: Strings = "refuse",
    missing: Missing = "refuse",
    standardise: bool = False,
    name: str = "frame",
) -> Table:
    """A frame as a table: `x` holds the features as numbers, `y` the target, and `client` names each row's client.

    A frame is whatever has columns by name: pandas, polars, Arrow, or a dict of arrays. A target of integers, booleans
    or strings becomes classes, numbered in sorted order; a target of floats is regressed on.

    Args:
        frame: The rows.
        client: The column that names each row's client.
        target: The column to predict.
        features: The columns to predict from; all others by default.
        part: A column of "train", "validation" and "test", kept as the official parts.
        strings: What becomes of feature columns of text: `"one_hot"` (a 0/1 feature per value), `"codes"` (one integer
            feature), or an error that says so.
        missing: What becomes of missing numbers: `"zero"`, `"mean"` of the column, or an error that names the column.
        standardise: Bring every feature to mean 0 and deviation 1, measured on the training rows of the training
            clients once the table is split, so that nothing of test rows or new users enters.
        name: How the table is called.

    >>> rows = {"user": ["a", "a", "b", "b"], "age": [20, 30, 40, 50], "buys": ["no", "yes", "no", "yes"]}
    >>> table = from_frame(rows, client="user", target="buys")
    >>> table.columns["x"].ravel().tolist(), table.columns["y"].tolist()
    ([20.0, 30.0, 40.0, 50.0], [0, 1, 0, 1])

    """
    require(strings in ("refuse", "one_hot", "codes"), "strings", "'refuse', 'one_hot' or 'codes'", strings)
    require(missing in ("refuse", "zero", "mean"), "missing", "'refuse', 'zero' or 'mean'", missing)
    columns = _columns(frame)
    wanted = _wanted(columns, [column for column in (client, target, part) if column is not None], features, name)
    pieces = [_feature(column, columns[column], strings, missing, name) for column in wanted]
    x = np.concatenate([values for _, values in pieces], axis=1).astype(np.float32)
    y, classes = _target(target, columns[target], name)
    key_names, keys = np.unique(_text(columns[client]), return_inverse=True)
    labels = ", ".join(label for labels, _ in pieces for label in labels)
    return Table(
        name,
        {"x": x, "y": y},
        keys.astype(np.int64),
        None if part is None else _parts(columns[part], part),
        about={"features": labels, **({"classes": ", ".join(classes)} if classes else {})},
        key_names=key_names.tolist(),
        after=_standardised if standardise else None,
    )


def from_csv(
    path: str | Path,
    *,
    client: str,
    target: str,
    features: Sequence[str] | None = None,
    part: str | None = None,
    strings: Strings = "refuse",
    missing: Missing = "refuse",
    standardise: bool = False,
    name: str | None = None,
) -> Table:
    """A CSV file with a header line as a table; the settings are those of `from_frame`."""
    place = _readable(path)
    return from_frame(
        _read_csv(place),
        client=client,
        target=target,
        features=features,
        part=part,
        strings=strings,
        missing=missing,
        standardise=standardise,
        name=name or place.name,
    )


def from_parquet(
    path: str | Path,
    *,
    client: str,
    target: str,
    features: Sequence[str] | None = None,
    part: str | None = None,
    strings: Strings = "refuse",
    missing: Missing = "refuse",
    standardise: bool = False,
    name: str | None = None,
) -> Table:
    """A Parquet file as a table; the settings are those of `from_frame`. Needs pyarrow (extra `frames`)."""
    place = _readable(path)
    return from_frame(
        _read_parquet(place),
        client=client,
        target=target,
        features=features,
        part=part,
        strings=strings,
        missing=missing,
        standardise=standardise,
        name=name or place.name,
    )


def _wanted(
    columns: Mapping[str, np.ndarray], others: list[str], features: Sequence[str] | None, name: str
) -> list[str]:
    """The feature columns: those that were named, or all but the client's, the target's and the part's."""
    wanted = [column for column in columns if column not in others] if features is None else list(features)
    for column in (*others, *wanted):
        if column not in columns:
            raise unknown("column", column, columns)
    if not wanted:
        raise DataError(f"{name} needs at least one feature column. Got only {', '.join(others)}.")
    return wanted


def _readable(path: str | Path) -> Path:
    place = Path(path)
    if not place.is_file():
        raise DataError(f"path must be a file. Got {place}.")
    return place


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    """Columns of a CSV file: whole numbers, other numbers, or text, whichever all of a column's cells are."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path.name} must be CSV in UTF-8: {first_line(error)}.") from None
    if len(set(header)) != len(header) or not header:
        raise DataError(f"{path.name} must start with a line of different column names. Got {header}.")
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise DataError(f"{path.name}, line {number} must have {len(header)} cells. Got {len(row)}.")
    return {column: _typed([row[index] for row in rows]) for index, column in enumerate(header)}


def _read_parquet(path: Path) -> object:
    """The file as an Arrow table."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError("from_parquet needs pyarrow. Install it with: pip install 'fedtempo[frames]'") from None
    try:
        return parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path.name} must be a Parquet file: {first_line(error)}.") from None


def _typed(cells: list[str]) -> np.ndarray:
    filled = ["nan" if cell.strip() in ("", "NA", "NaN", "nan", "null") else cell for cell in cells]
    for kind in (np.int64, np.float64):
        try:
            return (
                np.array(filled, dtype=object).astype(kind)
                if kind is np.float64
                else np.array([int(c) for c in filled])
            )
        except (ValueError, OverflowError):
            continue
    return np.array(cells, dtype=object)


def _columns(frame: Any) -> dict[str, np.ndarray]:
    """Every column as an array, whatever library the frame is of."""
    if isinstance(frame, Mapping):
        found = {str(name): np.asarray(values) for name, values in frame.items()}
    else:
        names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)
        if names is None:
            raise DataError(
                f"frame must have columns by name (pandas, polars, Arrow, a dict). Got {type(frame).__name__}."
            )
        found = {str(name): _array(frame[name]) for name in list(names)}
    lengths = {name: len(values) for name, values in found.items()}
    if not found or len(set(lengths.values())) != 1 or not next(iter(lengths.values())):
        raise DataError(f"frame must have rows, and columns of one length. Got {lengths}.")
    return found


def _array(column: Any) -> np.ndarray:
    if hasattr(column, "to_numpy"):
        try:
            return np.asarray(column.to_numpy())
        except (TypeError, ValueError):  # an Arrow array of text or with missing values has to be copied
            return np.asarray(column.to_numpy(zero_copy_only=False))
    return np.asarray(column)


def _is_text(values: np.ndarray) -> bool:
    if values.dtype.kind in "US":
        return True
    return values.dtype == object and any(isinstance(value, (str, bytes)) for value in values)


def _text(values: np.ndarray) -> np.ndarray:
    return np.array([_word(value) for value in values])


def _word(value: Any) -> str:
    """A value as a name; 3 and 3.0 are the same client, and so are missing ones."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "(missing)"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _feature(
    column: str, values: np.ndarray, strings: Strings, missing: Missing, name: str
) -> tuple[list[str], np.ndarray]:
    if _is_text(values):
        return _category(column, _text(values), strings, name)
    if values.dtype.kind in "mM":
        raise DataError(
            f"column {column!r} of {name} must be numbers, booleans or text. Got dates: turn them into numbers."
        )
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(f"column {column!r} of {name} must be numbers, booleans or text. Got {values.dtype}.") from None
    gaps = ~np.isfinite(numbers)
    if gaps.any():
        if missing == "refuse":
            raise DataError(
                f"column {column!r} of {name} must have no missing numbers. Got {int(gaps.sum())}: give missing='mean' "
                "or missing='zero', or leave the column out."
            )
        numbers = np.where(gaps, numbers[~gaps].mean() if missing == "mean" and not gaps.all() else 0.0, numbers)
    return [column], numbers[:, None]


def _category(column: str, words: np.ndarray, strings: Strings, name: str) -> tuple[list[str], np.ndarray]:
    if strings == "refuse":
        raise DataError(
            f"column {column!r} of {name} holds text. Say what becomes of it: strings='one_hot' (a 0/1 feature per "
            "value), strings='codes' (one integer feature), or leave it out of features."
        )
    values, codes = np.unique(words, return_inverse=True)
    if strings == "codes":
        return [column], codes[:, None].astype(np.float64)
    if len(values) > MOST_CATEGORIES:
        rule = f"at most {MOST_CATEGORIES} different texts for one_hot"
        raise DataError(f"column {column!r} of {name} must have {rule}. Got {len(values)}.")
    return [f"{column}={value}" for value in values], np.eye(len(values))[codes]


def _target(column: str, values: np.ndarray, name: str) -> tuple[np.ndarray, list[str]]:
    """The target, and the names of its classes where it has some."""
    if _is_text(values) or values.dtype.kind == "b":
        words = _text(values)
        if "(missing)" in words:
            raise DataError(f"target {column!r} of {name} must have a value in every row. Got missing ones.")
        classes, codes = np.unique(words, return_inverse=True)
        return codes.astype(np.int64), classes.tolist()
    if values.dtype.kind in "iu":
        classes, codes = np.unique(values, return_inverse=True)
        return codes.astype(np.int64), [str(value) for value in classes]
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise DataError(f"target {column!r} of {name} must have a value in every row. Got missing ones.")
    return numbers.astype(np.float32), []


def _parts(values: np.ndarray, column: str) -> np.ndarray:
    words = _text(values)
    strange = sorted(set(words) - set(PARTS))
    if strange:
        raise DataError(f"column {column!r} must hold {', '.join(PARTS)}. Got {strange[0]!r}.")
    return np.array([PARTS[word] for word in words], dtype=np.int8)


def _standardised(data: FederatedData) -> FederatedData:
    """Every feature at mean 0 and deviation 1 over the training rows of training clients."""
    rows = np.concatenate([data.positions(client, "train") for client in data.clients.tolist()])
    x = np.asarray(data.columns["x"], dtype=np.float64)
    mean, deviation = x[rows].mean(axis=0), x[rows].std(axis=0)
    scaled = (x - mean) / np.where(deviation > 0, deviation, 1.0)
    return replace(data, columns={**data.columns, "x": scaled.astype(np.float32)})


FRAMES: dict[str, Callable[..., Table]] = {"csv": from_csv, "parquet": from_parquet}
