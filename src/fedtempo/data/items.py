"""One item of a user's data set as arrays: tuples and dicts, tensors, images, bytes of images."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from fedtempo.data.lazy import LazyColumn, lazy_items
from fedtempo.data.own_clients import array_of_tensor
from fedtempo.errors import DataError, unknown
from fedtempo.randomness import generators_kept, states_of_generators
from fedtempo.support.extras import install

Columns = dict[str, np.ndarray]
Collate = Callable[[list[Any]], object]
"""From a list of items to columns with a row for each, as torch's `DataLoader` has it."""
CLIENT = "_client"
"""The name under which the client column is read."""


def refuse_draws(dataset: object, name: str) -> None:
    """An item is the same whenever it is read: one drawn by the global generators follows no seed of a run's."""
    with generators_kept():
        before = states_of_generators()
        try:
            dataset[0]  # type: ignore[index]
        except Exception:  # a data set that is only iterated, or a fault that reading will name
            return
        drawn = states_of_generators() != before
    if drawn:
        rule = "give the same row every time; random transforms belong in augment= of a run"
        raise DataError(f"{name} must {rule}. Got one that draws random numbers when a row is read.")


def item_columns(item: object, columns: Sequence[str]) -> Iterable[tuple[str, object]]:
    """The columns of an item by name: those of a dict, or a tuple's values in their order."""
    if isinstance(item, Mapping):
        for column in columns:
            if column not in item:
                raise unknown("column", column, map(str, item))
        return [(column, item[column]) for column in columns]
    values = item if isinstance(item, (tuple, list)) else [item]
    if len(values) != len(columns):
        raise DataError(f"columns must name the {len(values)} values of each item. Got {list(columns)}.")
    return zip(columns, values, strict=True)


def stacked(rows: Iterable[Mapping[str, object]], name: str) -> Columns:
    """One array for each column; every row must have the same shape there."""
    found: dict[str, list[np.ndarray]] = {}
    for number, row in enumerate(rows):
        for column, value in row.items():
            array = value_array(value)
            if column == CLIENT and (value is None or array.dtype == object):
                rule = f"the client column of {name} must have a name in every row"
                raise DataError(f"{rule}. Got {value!r} in row {number}.")
            if array.dtype == object or (array.dtype.kind not in "biuf" and column != CLIENT):
                raise DataError(
                    f"column {column!r} of {name} must hold numbers of one shape (tokenise and pad text). "
                    f"Got {type(value).__name__} in row {number}."
                )
            earlier = found.setdefault(column, [])
            if earlier and earlier[0].shape != array.shape:
                raise DataError(
                    f"column {column!r} of {name} must have one shape. Got {earlier[0].shape} in row 0 and "
                    f"{array.shape} in row {number}: pad them, or give `collate` to from_torch."
                )
            earlier.append(array)
    if not found:
        raise DataError(f"{name} has no rows.")
    return {column: np.stack(arrays) for column, arrays in found.items()}


def value_array(value: object) -> np.ndarray:
    """A value of an item: numbers, an image as (channels, height, width), or an object where it is neither."""
    if isinstance(value, torch.Tensor):
        return array_of_tensor(value)
    if hasattr(value, "getbands"):
        return _pixels(value)
    if isinstance(value, Mapping) and isinstance(value.get("bytes"), bytes):  # an image that `datasets` left encoded
        value = value["bytes"]
    if isinstance(value, bytes):
        return _decoded(value)
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        return np.empty((), dtype=object)


def _decoded(value: bytes) -> np.ndarray:
    """The pixels of a PNG, a JPEG or another encoded image; bytes that are none stay what they are."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError(f"bytes of images need Pillow: {install('data')}.") from None
    try:
        with Image.open(io.BytesIO(value)) as image:
            return _pixels(image)
    except UnidentifiedImageError:
        return np.asarray(value)


def _pixels(image: Any) -> np.ndarray:
    """A PIL image as (channels, height, width), the order that convolutions read."""
    plain = {"1": "L", "P": "RGB"}.get(image.mode)
    pixels = np.asarray(image if plain is None else image.convert(plain))
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def collated(items: list[object], collate: Collate, columns: Sequence[str], name: str) -> Columns:
    """What a collate function makes of some items, with a row for each."""
    found = {column: value_array(values) for column, values in item_columns(collate(items), columns)}
    for column, values in found.items():
        if values.dtype.kind not in "biuf" or values.shape[:1] != (len(items),):
            rule = f"numbers with one row for each of {len(items)} items"
            raise DataError(
                f"collate must make column {column!r} of {name} {rule}. Got {values.dtype} of shape {values.shape}."
            )
    return found


def lazily(
    dataset: Any,
    columns: Sequence[str],
    cache_bytes: int,
    name: str,
    collate: Collate | None = None,
    identity: str = "",
) -> Mapping[str, LazyColumn]:
    """The columns of a data set, read item by item; every one must hold numbers of one shape."""
    one = item_columns if collate is None else partial(_collated_alone, collate=collate, name=name)
    found = lazy_items(dataset, columns, one, value_array, cache_bytes, identity)
    for column, values in found.items():
        if values.dtype.kind not in "biuf":
            rule = f"column {column!r} of {name} must hold numbers of one shape (tokenise and pad text)"
            raise DataError(f"{rule}. Got {values.dtype} in row 0.")
    return found


def _collated_alone(item: object, columns: Sequence[str], collate: Collate, name: str) -> Iterable[tuple[str, object]]:
    return [(column, values[0]) for column, values in collated([item], collate, columns, name).items()]
