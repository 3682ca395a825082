"""Tables of mixed columns with a client column: a pandas or polars frame, an Arrow table, a CSV or a Parquet file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.data.frame_columns import columns_of, missing_in, read_csv, settled, words_of
from fedtempo.data.parts import PARTS
from fedtempo.data.table import Table
from fedtempo.errors import DataError, first_line, require, shown, unknown

Strings = Literal["refuse", "one_hot", "codes"]
Missing = Literal["refuse", "zero", "mean"]
TargetKind = Literal["classes", "numbers"]
LARGEST = float(np.finfo(np.float32).max)
MISSING_WORD = "(missing)"
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
    target_kind: TargetKind | None = None,
    standardise: bool = False,
    name: str = "frame",
) -> Table:
    """A frame as a table: `x` holds the features as numbers, `y` the target, and `client` names each row's client.

    A frame is whatever has columns by name: pandas, polars, Arrow, or a dict of arrays. A target of booleans or text
    becomes classes, numbered in sorted order; a target of floats is regressed on; whole numbers are classes if they
    are 0, 1, 2, ..., and otherwise you say what they are. A row without a client or a target is an error.

    Args:
        frame: The rows.
        client: The column that names each row's client.
        target: The column to predict.
        features: The columns to predict from; all others by default.
        part: A column of "train", "validation" and "test", kept as the official parts.
        strings: What becomes of feature columns of text: `"one_hot"` (a 0/1 feature per value), `"codes"` (one integer
            feature), or an error that says so.
        missing: What becomes of missing values: an error that names the column; `"zero"`; or `"mean"`, which is that of
            the training rows of the training clients once the table is split. Missing text is a value of its own.
        target_kind: `"classes"` or `"numbers"`, where the target's type does not say it.
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
    kinds = ("classes", "numbers")
    require(target_kind is None or target_kind in kinds, "target_kind", "'classes', 'numbers' or left out", target_kind)
    columns = columns_of(frame)
    client, target, part = (_column(client, "client"), _column(target, "target"), part and _column(part, "part"))
    wanted = _wanted(columns, (client, target, part), features, name)
    used = {column: settled(columns[column], column, name) for column in dict.fromkeys([client, target, *wanted])}
    pieces = [_feature(column, used[column], strings, missing, name) for column in wanted]
    x = np.concatenate([values for _, values in pieces], axis=1)
    labels = [label for labels, _ in pieces for label in labels]
    y, classes = _target(target, used[target], target_kind, name)
    key_names, keys = np.unique(_clients(used[client], client, name), return_inverse=True)
    return Table(
        name,
        {"x": x, "y": y},
        keys.astype(np.int64),
        None if part is None else _parts(settled(columns[part], part, name), part),
        about={"features": ", ".join(labels), **({"classes": ", ".join(classes)} if classes else {})},
        key_names=key_names.tolist(),
        after=partial(_finished, labels=tuple(labels), standardise=standardise),
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
    target_kind: TargetKind | None = None,
    standardise: bool = False,
    name: str | None = None,
) -> Table:
    """A CSV file with a header line as a table; the settings are those of `from_frame`."""
    place = _readable(path)
    return from_frame(
        read_csv(place, [column for column in (client, part) if column is not None]),
        client=client,
        target=target,
        features=features,
        part=part,
        strings=strings,
        missing=missing,
        target_kind=target_kind,
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
    target_kind: TargetKind | None = None,
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
        target_kind=target_kind,
        standardise=standardise,
        name=name or place.name,
    )


def _column(name: object, setting: str) -> str:
    """The name of a column, which pandas may have numbered."""
    require(isinstance(name, (str, int)) and not isinstance(name, bool), setting, "the name of a column", name)
    return str(name)


def _wanted(
    columns: Mapping[str, np.ndarray],
    others: tuple[str, str, str | None],
    features: Sequence[str] | None,
    name: str,
) -> list[str]:
    """The feature columns: those that were named, or all but the client's, the target's and the part's."""
    _, target, _ = others
    named = [column for column in others if column is not None]
    if len(set(named)) != len(named):
        raise DataError(f"client, target and part of {name} must be different columns. Got {', '.join(named)}.")
    listed = features is None or (isinstance(features, Sequence) and not isinstance(features, str))
    require(listed, "features", "a list of column names", features)
    wanted = [column for column in columns if column not in named] if features is None else list(map(str, features))
    for column in (*named, *wanted):
        if column not in columns:
            raise unknown("column", column, columns)
    if not wanted:
        raise DataError(f"{name} needs at least one feature column. Got only {', '.join(named)}.")
    if len(set(wanted)) != len(wanted) or target in wanted:
        rule = f"different columns of {name}, without the target {target!r}"
        raise DataError(f"features must be {rule}. Got {shown(wanted)}.")
    return wanted


def _readable(path: str | Path) -> Path:
    require(isinstance(path, (str, Path)), "path", "a path", path)
    place = Path(path).expanduser()
    if not place.is_file():
        raise DataError(f"path must be a file. Got {place}.")
    return place


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


def _refuse_gaps(values: np.ndarray, what: str, hint: str = "") -> None:
    gaps = int(missing_in(values).sum())
    if gaps:
        raise DataError(f"{what} must have a value in every row. Got {gaps} missing{hint}.")


def _clients(values: np.ndarray, column: str, name: str) -> np.ndarray:
    """Each row's client; rows of nobody are not put together to one client."""
    _refuse_gaps(values, f"client {column!r} of {name}")
    return words_of(values)


def _feature(
    column: str, values: np.ndarray, strings: Strings, missing: Missing, name: str
) -> tuple[list[str], np.ndarray]:
    if missing == "refuse" and (strings != "refuse" or values.dtype != object):
        hint = ": give missing='mean' or missing='zero', or leave the column out"
        _refuse_gaps(values, f"column {column!r} of {name}", hint)
    if values.dtype == object:
        gaps = missing_in(values)
        words = np.where(gaps, MISSING_WORD, words_of(values))
        return _category(column, words, strings, name)
    numbers = values.astype(np.float64)
    wild = ~np.isnan(numbers) & ~(np.abs(numbers) <= LARGEST)
    if wild.any():
        rule = f"finite numbers of at most {LARGEST:.3g} in size"
        raise DataError(f"column {column!r} of {name} must hold {rule}. Got {numbers[wild][0]:g}.")
    return [column], (np.nan_to_num(numbers) if missing == "zero" else numbers)[:, None]


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


def _target(column: str, values: np.ndarray, kind: TargetKind | None, name: str) -> tuple[np.ndarray, list[str]]:
    """The target, and the names of its classes where it has some."""
    what = f"target {column!r} of {name}"
    _refuse_gaps(values, what)
    if values.dtype == object or values.dtype.kind == "b":
        if kind == "numbers" and values.dtype == object:
            raise DataError(f"{what} must hold numbers where target_kind is 'numbers'. Got {shown(values[0])}.")
        words, codes = np.unique(words_of(values), return_inverse=True)
        return (values.astype(np.float64), []) if kind == "numbers" else (codes.astype(np.int64), words.tolist())
    numbers, codes = np.unique(values, return_inverse=True)
    if not np.isfinite(values.astype(np.float64)).all():
        raise DataError(f"{what} must hold finite numbers. Got infinity.")
    if values.dtype.kind == "f" and kind != "classes":
        return values.astype(np.float64), []
    broken = numbers[numbers != np.floor(numbers)]
    if len(broken):
        raise DataError(f"{what} must hold whole numbers to be classes. Got {broken[0]}.")
    if kind == "numbers":
        return values.astype(np.float64), []
    if kind is None and not np.array_equal(numbers, np.arange(len(numbers))):
        raise DataError(
            f"{what} must be 0, 1, 2, ... to be taken for classes. Got whole numbers {numbers[0]} to {numbers[-1]}: "
            "say target_kind='classes' (numbered in their order) or target_kind='numbers' (predicted as they are)."
        )
    return codes.astype(np.int64), words_of(numbers).tolist()


def _parts(values: np.ndarray, column: str) -> np.ndarray:
    words = words_of(values)
    strange = sorted(set(words) - set(PARTS))
    if strange:
        raise DataError(f"column {column!r} must hold {', '.join(PARTS)}. Got {strange[0]!r}.")
    return np.array([PARTS[word] for word in words], dtype=np.int8)


def _finished(data: FederatedData, labels: Sequence[str], standardise: bool) -> FederatedData:
    """Gaps filled with the mean, and features brought to mean 0 and deviation 1.

    Both are measured on the training rows of training clients, so that nothing of test rows or new users enters.
    """
    x = np.asarray(data.columns["x"])
    gaps = np.isnan(x)
    if not gaps.any() and not standardise:
        return data
    rows = np.concatenate([data.positions(client, "train") for client in data.clients.tolist()])
    known = x[rows]
    empty = np.isnan(known).all(axis=0)
    if empty.any():
        label = labels[int(np.flatnonzero(empty)[0])]
        raise DataError(f"column {label!r} must have a number in some training row for missing='mean'. Got none.")
    x = np.where(gaps, np.nanmean(known, axis=0), x)
    if standardise:
        deviation = x[rows].std(axis=0)
        x = (x - x[rows].mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return replace(data, columns={**data.columns, "x": x})
