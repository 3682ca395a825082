"""Other libraries' data sets as tables: torch, Hugging Face datasets, and Flower's partitioners.

Each gives a `Table`; `.split()` then makes clients of it: those that came along, or those of any of our splits. Where a
mapping from "train", "validation" and "test" is given instead of one data set, these are kept as the table's parts:
a split draws only a part that is missing, from the training rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset, TensorDataset

from fedtempo.data.items import (
    CLIENT,
    Collate,
    Columns,
    collated,
    item_columns,
    lazily,
    refuse_draws,
    stacked,
    value_array,
)
from fedtempo.data.lazy import CACHE_BYTES, JoinedRows
from fedtempo.data.parts import PARTS
from fedtempo.data.table import Table
from fedtempo.errors import DataError, unknown
from fedtempo.support.extras import library

Normalise = Mapping[str, tuple[float, float]]


def from_torch(
    dataset: Dataset[Any] | Mapping[str, Dataset[Any]],
    owner: Sequence[Any] | np.ndarray | Mapping[str, Any] | None = None,
    *,
    columns: Sequence[str] = ("x", "y"),
    normalise: Normalise | None = None,
    lazy: bool = False,
    targets: Sequence[Any] | np.ndarray | None = None,
    cache_bytes: int = CACHE_BYTES,
    collate: Collate | None = None,
    name: str = "torch data set",
) -> Table:
    """A torch `Dataset` as a table; `owner` names the client of every row, in the data set's order.

    It is read once into memory, or with `lazy=True` item by item when a batch needs it, keeping up to `cache_bytes`.
    Labels are always read at once: `targets` where you give them; an attribute of that name, as torchvision's have,
    where it says what the items say; or the items' own, for which every item is read once.

    Items are tuples, named by `columns`, or dicts, of which `columns` are kept. Images, of PIL or as the bytes of a PNG
    or JPEG file, become channels-first bytes, which are read as 0 to 1 unless `normalise` gives another mean and
    deviation. Items of different length need a `collate` function, as torch's `DataLoader` takes it: from a list of
    items to a tuple or dict of columns. It gets all items at once; with `lazy=True` each by itself, so that it has to
    pad to a fixed length.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> rows = TensorDataset(torch.zeros(6, 2), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> len(from_torch(rows, owner=[0, 0, 0, 1, 1, 1]).split(validation=0.0, test=0.0))
    2
    """
    for each in _by_part(dataset).values():
        refuse_draws(each, name)
    if lazy:
        return _lazy_table(dataset, owner, columns, normalise, targets, cache_bytes, collate, name)
    parts = _by_part(dataset)
    read = {part: _read_torch(each, columns, collate, name) for part, each in parts.items()}
    owners = None if owner is None else _owners(owner, {part: _length(found) for part, found in read.items()})
    return _table(name, read, owners, normalise)


def from_hugging_face(
    dataset: Any,
    columns: Mapping[str, str],
    client: str | None = None,
    *,
    normalise: Normalise | None = None,
    lazy: bool = False,
    cache_bytes: int = CACHE_BYTES,
    name: str = "Hugging Face data set",
) -> Table:
    """A `datasets.Dataset` or `DatasetDict` as a table; its column `client` names the client of every row.

    `columns` maps our names to theirs: `{"x": "image", "y": "label"}`. A format or transform set on the data set is
    respected, so text is tokenised and padded there first. Images become channels-first bytes and are read as in
    `from_torch`. Needs the `datasets` extra.

    It is read once into memory. With `lazy=True` rows stay in its Arrow files, which are mapped, and are decoded when a
    batch needs them, keeping up to `cache_bytes`; only labels (`y`) and clients are read at once.
    """
    kind = library("datasets", "datasets", "from_hugging_face", DataError).Dataset
    wanted = dict(columns) if client is None else {**columns, CLIENT: client}
    parts = _by_part(dataset)
    for each in parts.values():
        if not isinstance(each, kind):
            raise DataError(f"dataset must be a datasets.Dataset or a DatasetDict. Got {type(each).__name__}.")
        if each.format["type"] == "custom":  # without a transform, rows are what the files hold
            refuse_draws(each, name)
    later = {ours: theirs for ours, theirs in columns.items() if lazy and ours != "y"}
    found: Columns = _lazy_hugging_face(parts, later, cache_bytes, name) if later else {}
    now = {ours: theirs for ours, theirs in wanted.items() if ours not in later}
    read = {part: _read_hugging_face(each, now, name) if now else {} for part, each in parts.items()}
    owners = None if client is None else {part: columns.pop(CLIENT) for part, columns in read.items()}
    sizes = {part: len(each) for part, each in parts.items()}
    return _table(name, read, owners, normalise, found, sizes)


def from_flower_partitioner(
    partitioner: Any,
    columns: Mapping[str, str],
    *,
    normalise: Normalise | None = None,
    name: str = "Flower partitions",
) -> Table:
    """The partitions of a `flwr_datasets` partitioner, client by client; `.split()` keeps them.

    The partitioner must have its data set. A mapping from parts to partitioners keeps the parts: partition i of each is
    client i. `columns` is as in `from_hugging_face`. Needs `flwr-datasets`.
    """
    kind = library("flwr_datasets.partitioner", None, "from_flower_partitioner", DataError).Partitioner
    read, owners = {}, {}
    for part, each in _by_part(partitioner).items():
        if not isinstance(each, kind):
            raise DataError(f"partitioner must be a flwr_datasets Partitioner. Got {type(each).__name__}.")
        if not each.is_dataset_assigned():
            raise DataError("partitioner must have its data set: set `partitioner.dataset` first. Got none.")
        pieces = [_read_partition(each, number, columns, name) for number in range(each.num_partitions)]
        read[part] = {ours: np.concatenate([piece[ours] for piece in pieces]) for ours in columns}
        owners[part] = np.repeat(np.arange(len(pieces)), [_length(piece) for piece in pieces])
    if len({int(owner[-1]) for owner in owners.values()}) > 1:
        counts = {part: int(owner[-1]) + 1 for part, owner in owners.items()}
        raise DataError(f"the parts must have the same number of partitions. Got {counts}.")
    return _table(name, read, owners, normalise)


_WHOLE = ""


def _by_part(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        return {_WHOLE: given}
    strange = [part for part in given if part not in PARTS]
    if strange or not given:
        rule = f"a data set, or a mapping from {', '.join(PARTS)}; choose from it what belongs to these parts"
        raise DataError(f"dataset must be {rule}. Got {sorted(map(str, given))}.")
    return given


def _read_torch(dataset: Dataset[Any], columns: Sequence[str], collate: Collate | None, name: str) -> Columns:
    if collate is not None:
        return collated(list(_items(dataset)), collate, columns, name)
    if isinstance(dataset, TensorDataset):
        return {column: value_array(tensor) for column, tensor in item_columns(dataset.tensors, columns)}
    return stacked((dict(item_columns(item, columns)) for item in _items(dataset)), name)


def _lazy_table(
    dataset: Any,
    owner: Any,
    columns: Sequence[str],
    normalise: Normalise | None,
    targets: Any,
    cache_bytes: int,
    collate: Collate | None,
    name: str,
) -> Table:
    """A map-style data set whose items stay where they are, but for the labels."""
    if isinstance(dataset, Mapping) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise DataError(f"a lazy data set must have a length and items by number. Got {type(dataset).__name__}.")
    found: dict[str, Any] = dict(lazily(dataset, columns, cache_bytes, name, collate))
    if "y" in columns:
        found["y"] = _all_labels(dataset, found["y"], targets)
    keys = None if owner is None else _owners(owner, {_WHOLE: len(dataset)})[_WHOLE]
    return Table(name, found, keys, None, {**_images(found), **(normalise or {})})


def _all_labels(dataset: Any, column: Any, targets: Any) -> np.ndarray:
    """Every item's label at once, since splits and tasks look at all: as given, as the data set lists them, or read."""
    rows = len(column)
    if targets is not None:
        given = value_array(targets)
        if given.dtype.kind not in "biuf" or given.shape[:1] != (rows,):
            what = f"{given.dtype} of shape {given.shape}"
            raise DataError(f"targets must be numbers with one entry per item, {rows}. Got {what}.")
        return given
    listed = None if _changes_targets(dataset) else getattr(dataset, "targets", None)
    own = np.empty(0) if listed is None else value_array(listed)
    # The list spares reading every item, but it counts only if some items say the same.
    agree = own.shape == column.shape and all(np.array_equal(own[i], column[i]) for i in (0, rows // 2, rows - 1))
    return own.astype(column.dtype) if agree else np.asarray(column[:])


def _changes_targets(dataset: Any) -> bool:
    """Whether the items of a data set like torchvision's have other labels than its list `targets`."""
    # torchvision wraps a plain `transform` too; the wrapper then has a `target_transform` that is None.
    both = getattr(dataset, "transforms", None)
    changes = (getattr(dataset, "target_transform", None), getattr(both, "target_transform", both))
    return any(change is not None for change in changes)


def _images(columns: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """How images are read: as 0 to 1. Left alone they would be trained on as integers."""
    # Bytes with two axes or more are images, but for the target: a map of classes is one of numbers.
    return {
        c: (0.0, 255.0) for c, values in columns.items() if values.dtype == np.uint8 and values.ndim > 2 and c != "y"
    }


def _items(dataset: Any) -> Iterator[Any]:
    """A map-style data set by number, since many never raise the IndexError that ends iteration; others in order."""
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return (dataset[number] for number in range(len(dataset)))
    if not hasattr(dataset, "__iter__"):
        raise DataError(f"dataset must be a torch Dataset with a length, or iterable. Got {type(dataset).__name__}.")
    return iter(dataset)


def _cut_down(dataset: Any, columns: Mapping[str, str]) -> Any:
    """The data set with these columns alone, so that no other is decoded."""
    # A user's own transform may read columns that it does not return, so only plain data sets are cut down.
    if dataset.format["type"] == "custom":
        return dataset
    for theirs in columns.values():
        if theirs not in dataset.column_names:
            raise unknown("column", theirs, dataset.column_names)
    return dataset.select_columns(sorted(set(columns.values())))


def _lazy_hugging_face(parts: Mapping[str, Any], columns: Mapping[str, str], cache_bytes: int, name: str) -> Any:
    """Columns that read Arrow files row by row, over all parts."""
    rows = JoinedRows([_cut_down(each, columns) for each in parts.values()], columns)
    if not len(rows):
        raise DataError(f"{name} has no rows.")
    # Numbers of rows, and the files with their sizes: what a run's identity can know without reading all of it.
    files = [Path(file["filename"]) for each in parts.values() for file in each.cache_files]
    identity = "\n".join(
        [str([len(each) for each in parts.values()]), *(f"{p.name} {p.stat().st_size}" for p in files)]
    )
    return lazily(rows, list(columns), cache_bytes, name, identity=identity)


def _read_hugging_face(dataset: Any, columns: Mapping[str, str], name: str) -> Columns:
    dataset = _cut_down(dataset, columns)
    rows = (dict(item_columns(row, list(columns.values()))) for row in dataset)
    return stacked(({ours: row[theirs] for ours, theirs in columns.items()} for row in rows), name)


def _read_partition(partitioner: Any, number: int, columns: Mapping[str, str], name: str) -> Columns:
    try:
        partition = partitioner.load_partition(number)
    except (IndexError, ValueError) as error:
        raise DataError(f"partition {number} of {name} cannot be made: {error}") from None
    return _read_hugging_face(partition, columns, f"partition {number} of {name}")


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _owners(owner: Any, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Each part's clients, from a mapping like the data set's or from one list over all parts."""
    if isinstance(owner, Mapping):
        found = {part: np.asarray(owner.get(part, ())) for part in sizes}
    else:
        ends = np.cumsum(list(sizes.values()))
        pieces = np.split(np.asarray(owner), ends[:-1])
        found = dict(zip(sizes, pieces, strict=True))
    for part, size in sizes.items():
        if found[part].shape != (size,):
            where = f" of part {part!r}" if part else ""
            raise DataError(f"owner must name a client for each of the {size} rows{where}. Got {found[part].shape}.")
        nameless = [row for row, key in enumerate(found[part].tolist()) if key is None or key != key]  # noqa: PLR0124
        if nameless:
            row = nameless[0]
            raise DataError(f"owner must name a client for each row. Got {found[part][row]} in row {row}.")
    return found


def _table(
    name: str,
    read: Mapping[str, Columns],
    owners: Mapping[str, np.ndarray] | None,
    normalise: Normalise | None,
    later: Columns | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Table:
    """A table of columns that were read part by part, and of those to be read later, over all parts."""
    first = next(iter(read.values()))
    columns = {**(later or {}), **{column: np.concatenate([read[part][column] for part in read]) for column in first}}
    sizes = sizes or {part: _length(found) for part, found in read.items()}
    for column in normalise or {}:
        if column not in columns:
            raise unknown("normalise column", column, columns)
    keys = None if owners is None else np.concatenate([owners[part] for part in read])
    parts = [np.full(size, PARTS[part], dtype=np.int8) for part, size in sizes.items() if part != _WHOLE]
    official = np.concatenate(parts) if parts else None
    return Table(name, columns, keys, official, {**_images(columns), **(normalise or {})}, own_parts=True)
