"""Tables of mixed columns with a client column: a pandas or polars frame, an Arrow table, a CSV or a Parquet file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from fedtempo.data.categories import codes_of, in_order
from fedtempo.data.column_doubts import strangest
from fedtempo.data.federated import FederatedData
from fedtempo.data.frame_columns import columns_of, orders_of, read_csv, settled, words_of
from fedtempo.data.parts import PARTS
from fedtempo.data.preparation import (
    Feature,
    Missing,
    Preparation,
    Strings,
    feature_of,
    refuse_gaps,
    warn_of_nothing,
    warn_of_spellings,
)
from fedtempo.data.table import Table
from fedtempo.errors import DataError, first_line, require, shown, unknown
from fedtempo.support.extras import library
from fedtempo.support.room import require_room
from fedtempo.tasks import SAMPLE_WEIGHT

TargetKind = Literal["classes", "numbers"]
ROUNDING = 1e-12
"""The deviation of a column, relative to its mean, up to which it is rounding and the column is constant."""


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
    becomes classes, numbered in sorted order or in that of an ordered `Categorical`; a target of floats is regressed
    on; whole numbers are classes if they are 0, 1, 2, ..., and otherwise you say what they are. A row without a client
    or a target is an error.

    Args:
        frame: The rows.
        client: The column that names each row's client.
        target: The column to predict.
        features: The columns to predict from; all others by default. A column `sample_weight` that is not listed here
            holds the weight of each row in the loss.
        part: A column of "train", "validation" and "test". Rows stay what it says; a split draws only a part that it
            does not have, from the training rows.
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
    columns, orders = columns_of(frame), orders_of(frame)
    client, target, part = (_column(client, "client"), _column(target, "target"), part and _column(part, "part"))
    _refuse_index(frame, columns, (client, target, *(features if isinstance(features, Sequence) else ())), name)
    wanted = _wanted(columns, (client, target, part), features, name)
    used = {column: settled(columns[column], column, name) for column in dict.fromkeys([client, target, *wanted])}
    made = [feature_of(column, used[column], strings, missing, name, orders.get(column)) for column in wanted]
    labels = [label for feature in made for label in feature.labels]
    require_room(3 * 8 * len(used[client]) * len(labels), f"{name} with {len(labels):,} features")
    x = np.concatenate([feature.numbers(used[feature.column], name) for feature in made], axis=1)
    y, classes = _target(target, used[target], target_kind, name, orders.get(target, ()))
    weights = _weights(columns, (client, target, part, *wanted), name)
    key_names, keys = np.unique(_clients(used[client], client, name), return_inverse=True)
    warn_of_spellings(key_names, f"client {client!r} of {name}", "clients")
    warn_of_nothing(key_names, f"client {client!r} of {name}")
    return Table(
        name,
        {"x": np.nan_to_num(x) if missing == "zero" else x, "y": y, **weights},
        keys.astype(np.int64),
        None if part is None else _parts(settled(columns[part], part, name), part),
        about={"features": ", ".join(labels), **({"classes": ", ".join(classes)} if classes else {})},
        key_names=key_names.tolist(),
        own_parts=True,
        after=partial(_prepared, features=made, classes=classes, missing=missing, standardise=standardise),
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
    separator: str = ",",
    decimal: str = ".",
    name: str | None = None,
) -> Table:
    """A CSV file with a header line as a table; the settings are those of `from_frame`.

    `separator` stands between cells: `","`, `";"`, a tab or `"|"`. With `decimal=","` the cell 4,5 is the number 4.5.
    """
    settings = dict(locals())  # every parameter, passed on by name
    place = _readable(settings.pop("path"))
    del settings["separator"], settings["decimal"]
    frame = read_csv(place, [str(column) for column in (client, part) if column is not None], separator, decimal)
    return from_frame(frame, **{**settings, "name": name or place.name})


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
    settings = dict(locals())  # every parameter, passed on by name
    place = _readable(settings.pop("path"))
    return from_frame(_read_parquet(place), **{**settings, "name": name or place.name})


def _column(name: object, setting: str) -> str:
    """The name of a column, which pandas may have numbered."""
    require(isinstance(name, (str, int)) and not isinstance(name, bool), setting, "the name of a column", name)
    return str(name)


def _refuse_index(frame: object, columns: Collection[str], named: Sequence[str], name: str) -> None:
    """Pandas shows an index as if it were a column."""
    indexed = [str(column) for column in getattr(getattr(frame, "index", None), "names", ())]
    for column in named:
        if column in indexed and column not in columns:
            rule = f"columns of {name}. Got {column!r}, which is its index: give frame.reset_index()"
            raise DataError(f"client, target and features must be {rule}.")


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
    free = [column for column in columns if column not in (*named, SAMPLE_WEIGHT)]
    wanted = free if features is None else list(map(str, features))
    for column in (*named, *wanted):
        if column not in columns:
            raise unknown("column", column, columns)
    if not wanted:
        raise DataError(f"{name} needs at least one feature column. Got only {', '.join(named)}.")
    if len(set(wanted)) != len(wanted) or target in wanted:
        rule = f"different columns of {name}, without the target {target!r}"
        raise DataError(f"features must be {rule}. Got {shown(wanted)}.")
    return wanted


def _weights(columns: Mapping[str, np.ndarray], taken: Sequence[str | None], name: str) -> dict[str, np.ndarray]:
    """The weights of rows, under the name by which clients' dicts give them; a column that is in use is none."""
    if SAMPLE_WEIGHT not in columns or SAMPLE_WEIGHT in taken:
        return {}
    values = settled(columns[SAMPLE_WEIGHT], SAMPLE_WEIGHT, name)
    refuse_gaps(values, f"column {SAMPLE_WEIGHT!r} of {name}")
    return {SAMPLE_WEIGHT: Feature(SAMPLE_WEIGHT).numbers(values, name)[:, 0]}


def _readable(path: str | Path) -> Path:
    require(isinstance(path, (str, Path)), "path", "a path", path)
    place = Path(path).expanduser()
    if not place.is_file():
        raise DataError(f"path must be a file. Got {place}.")
    return place


def _read_parquet(path: Path) -> object:
    """The file as an Arrow table."""
    parquet = library("pyarrow.parquet", "frames", "from_parquet", DataError)
    try:
        about = parquet.read_metadata(path)
        require_room(8.0 * about.num_rows * about.num_columns, path.name)
        return parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path.name} must be a Parquet file: {first_line(error)}.") from None


def _clients(values: np.ndarray, column: str, name: str) -> np.ndarray:
    """Each row's client; rows of nobody are not put together to one client."""
    refuse_gaps(values, f"client {column!r} of {name}")
    return words_of(values)


def _target(
    column: str, values: np.ndarray, kind: TargetKind | None, name: str, order: Sequence[str]
) -> tuple[np.ndarray, list[str]]:
    """The target, and the names of its classes where it has some."""
    what = f"target {column!r} of {name}"
    refuse_gaps(values, what)
    if values.dtype == object or values.dtype.kind == "b":
        if kind == "numbers" and values.dtype == object:
            raise DataError(f"{what} must hold numbers where target_kind is 'numbers'. Got {shown(strangest(values))}.")
        if kind == "numbers":
            return values.astype(np.float64), []
        words = words_of(values)
        classes = _classes(in_order(np.unique(words), order), what)
        return codes_of(words, classes), classes
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
    return codes.astype(np.int64), _classes(words_of(numbers), what)


def _classes(words: np.ndarray, what: str) -> list[str]:
    """The names of the classes; with a single one there is nothing to learn."""
    if len(words) < 2:
        raise DataError(f"{what} must have at least two classes. Got {words[0]!s} in every row.")
    warn_of_spellings(words, what, "classes")
    warn_of_nothing(words, what)
    return [str(word) for word in words]


def _parts(values: np.ndarray, column: str) -> np.ndarray:
    words = words_of(values)
    strange = sorted(set(words) - set(PARTS))
    if strange:
        raise DataError(f"column {column!r} must hold {', '.join(PARTS)}. Got {strange[0]!r}.")
    return np.array([PARTS[word] for word in words], dtype=np.int8)


def _prepared(
    data: FederatedData, features: Sequence[Feature], classes: Sequence[str], missing: Missing, standardise: bool
) -> FederatedData:
    """Gaps filled with the mean, and features brought to mean 0 and deviation 1.

    Both are measured on the training rows of training clients, so that nothing of test rows or new users enters.
    """
    x = np.asarray(data.columns["x"])
    width = x.shape[1]
    fill = (0.0 if missing == "zero" else float("nan"),) * width
    made = Preparation(tuple(features), fill, (0.0,) * width, (1.0,) * width, tuple(classes))
    if missing == "mean" or standardise:
        made = _measured(
            made, x[np.concatenate([data.positions(c) for c in data.clients.tolist()])], missing, standardise
        )
    x = made.of(x) if standardise or np.isnan(x).any() else x
    return replace(data, columns={**data.columns, "x": x}, preparation=made)


def _measured(plain: Preparation, known: np.ndarray, missing: Missing, standardise: bool) -> Preparation:
    """The preparation with the numbers of these rows."""
    if missing == "mean":
        empty = np.isnan(known).all(axis=0)
        if empty.any():
            label = plain.labels[int(np.flatnonzero(empty)[0])]
            raise DataError(f"column {label!r} must have a number in some training row for missing='mean'. Got none.")
        plain = replace(plain, fill=tuple(np.nanmean(known, axis=0).tolist()))
    if not standardise:
        return plain
    filled = plain.of(known)
    mean, deviation = filled.mean(axis=0), filled.std(axis=0)
    # The mean of equal numbers may be off by a rounding error; as a scale it would blow up any other number.
    constant = (filled.max(axis=0) == filled.min(axis=0)) | (deviation <= ROUNDING * np.abs(mean))
    scale = np.where(constant, 1.0, deviation)
    return replace(plain, mean=tuple(mean.tolist()), scale=tuple(scale.tolist()))
