"""Columns that are read when a batch needs them: image folders larger than memory, data sets that decode as they go.

A lazy column stands where an array would stand in a `Table`: it has a length, a type and a shape, and rows of it are
read by number. A cache with a limit keeps what was read last.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedtempo.data.own_clients import array_of_tensor
from fedtempo.data.table import Table
from fedtempo.errors import DataError, FedTempoError, first_line, is_count, require
from fedtempo.support.extras import install

Read = Callable[[int], np.ndarray]
"""From a row's number to its values."""
CACHE_BYTES = 512 * 2**20
_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_WIDE_MODES = ("I", "F")
"""How Pillow's modes of 16-bit numbers, whole numbers and floats begin: I;16, I;16B, I, F."""


class LazyColumn:
    """Rows that are read one by one when they are asked for; all have one shape and one type."""

    def __init__(
        self, read: Read, rows: int, cache_bytes: int = CACHE_BYTES, name: str = "x", identity: str = ""
    ) -> None:
        require(is_count(rows), "rows", "an int >= 1", rows)
        require(is_count(cache_bytes, 0), "cache_bytes", "an int >= 0", cache_bytes)
        self._read = read
        self._limit = cache_bytes
        self._name = name
        self._kept: OrderedDict[int, np.ndarray] = OrderedDict()
        self._bytes = 0
        first = self._read_row(0)
        self.dtype = first.dtype
        self.shape = (rows, *first.shape)
        self.identity = identity
        """What decides the rows, as text: files and their sizes, for a run's identity."""

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def ndim(self) -> int:
        """The number of dimensions, rows included."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """How large the column would be in memory."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def cached_bytes(self) -> int:
        """How much of it is in memory now."""
        return self._bytes

    def __getitem__(self, rows: Any) -> np.ndarray:
        """A row by its number, or rows by slice or by an array of numbers."""
        if isinstance(rows, (int, np.integer)):
            return self._row(range(len(self))[int(rows)])  # numpy reads a sequence until there is an IndexError
        numbers = np.arange(len(self))[rows] if isinstance(rows, slice) else np.asarray(rows)
        if not len(numbers):
            return np.empty((0, *self.shape[1:]), dtype=self.dtype)
        return np.stack([self._row(int(number)) for number in numbers])

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self._row(number) for number in range(len(self)))

    def _row(self, number: int) -> np.ndarray:
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        values = self._read_row(number)
        if values.shape != self.shape[1:] or values.dtype != self.dtype:
            rule = f"{self.dtype} of shape {self.shape[1:]}, as row 0"
            raise DataError(
                f"row {number} of column {self._name!r} must be {rule}. Got {values.dtype} of {values.shape}."
            )
        self._keep(number, values)
        return values

    def _read_row(self, number: int) -> np.ndarray:
        try:
            return np.asarray(self._read(number))
        except FedTempoError:
            raise
        except Exception as error:  # reading is the user's code or another library's
            raise DataError(f"row {number} of column {self._name!r} cannot be read: {first_line(error)}.") from error

    def _keep(self, number: int, values: np.ndarray) -> None:
        if values.nbytes > self._limit:
            return
        self._kept[number] = values
        self._bytes += values.nbytes
        while self._bytes > self._limit:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.nbytes

    def __getstate__(self) -> dict[str, Any]:
        """Sent to another process without what is cached here."""
        return {**self.__dict__, "_kept": OrderedDict(), "_bytes": 0}


def from_images(
    folder: str | Path,
    *,
    layout: Sequence[str] = ("client", "label"),
    size: tuple[int, int] | None = None,
    colour: bool = True,
    cache_bytes: int = CACHE_BYTES,
    name: str | None = None,
) -> Table:
    """A folder of images, decoded when a batch needs them; `layout` says what the levels of folders mean.

    `("client", "label")` reads `folder/client/label/image.png`; `("label",)` has no clients of its own, and a split
    makes some. `size` (height, width) resizes; without it all images must have one size. Bytes are read as 0 to 1.
    Images of more than 8 bits a channel (16-bit grey, whole numbers, floats) are refused: Pillow would cut them off at
    255, and only you know their range. Scale them to 8 bits first, or in a data set for `from_torch`.
    """
    try:
        import PIL  # noqa: F401 - asked for now and not at the first image
    except ImportError:
        raise DataError(f"from_images needs Pillow: {install('data')}.") from None
    root = Path(folder)
    require(root.is_dir(), "folder", "a folder", str(root))
    holds = "label" in layout and set(layout) <= {"client", "label"} and len(set(layout)) == len(layout)
    require(holds, "layout", "('client', 'label'), ('label', 'client') or ('label',)", tuple(layout))
    depth = len(layout)
    files = sorted(
        p for p in root.rglob("*") if p.suffix.lower() in _ENDINGS and len(p.relative_to(root).parts) == depth + 1
    )
    if not files:
        raise DataError(f"{root} must hold images in folders of {' / '.join(layout)}. Got none.")
    levels = {level: [p.relative_to(root).parts[index] for p in files] for index, level in enumerate(layout)}

    labels, y = np.unique(levels["label"], return_inverse=True)
    clients = np.unique(levels["client"], return_inverse=True) if "client" in levels else None
    identity = "\n".join(f"{p.relative_to(root)} {p.stat().st_size}" for p in files)
    read = partial(_pixels, files=files, size=size, colour=colour)
    column: Any = LazyColumn(read, len(files), cache_bytes, identity=identity)
    return Table(
        name or root.name,
        {"x": column, "y": y.astype(np.int64)},
        None if clients is None else clients[1].astype(np.int64),
        normalise={"x": (0.0, 255.0)},
        about={"classes": ", ".join(labels.tolist())},
        key_names=None if clients is None else clients[0].tolist(),
    )


def _pixels(number: int, files: Sequence[Path], size: tuple[int, int] | None, colour: bool) -> np.ndarray:
    """The bytes of an image as (channels, height, width)."""
    from PIL import Image, UnidentifiedImageError

    path = files[number]
    try:
        with Image.open(io.BytesIO(path.read_bytes())) as image:
            if image.mode.startswith(_WIDE_MODES):
                raise DataError(f"{path} must have at most 8 bits a channel. Got mode {image.mode!r}: scale it first.")
            plain = image.convert("RGB" if colour else "L")
            pixels = np.asarray(plain if size is None else plain.resize((size[1], size[0])))
    except UnidentifiedImageError:
        raise DataError(f"{path} must be an image that Pillow reads. Got other bytes.") from None
    except OSError as error:
        raise DataError(f"{path} must be a whole image: {first_line(error)}.") from None
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def lazy_items(
    dataset: Any,
    columns: Sequence[str],
    named: Callable[[Any, Sequence[str]], Any],
    array: Callable[[Any], np.ndarray],
    cache_bytes: int,
    identity: str = "",
) -> Mapping[str, LazyColumn]:
    """The columns of a map-style data set, read item by item; an item's columns are decoded together."""
    items, share = _Items(dataset, tuple(columns), named, array), cache_bytes // max(len(columns), 1)
    return {
        column: LazyColumn(partial(items.read, column=column), len(dataset), share, column, identity)
        for column in columns
    }


class _Items:
    """Reads items and remembers the latest; a class, so that it can be sent to other processes."""

    def __init__(self, dataset: Any, columns: Sequence[str], named: Any, array: Any) -> None:
        self._dataset, self._columns, self._named, self._array = dataset, columns, named, array
        self._latest: tuple[int, dict[str, Any]] = (-1, {})

    def read(self, number: int, column: str) -> np.ndarray:
        """One column of an item."""
        if self._latest[0] != number:
            self._latest = number, dict(self._named(self._dataset[number], self._columns))
        values: np.ndarray = self._array(self._latest[1][column])
        return values

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": (-1, {})}


class JoinedRows:
    """The rows of several data sets, one after the other, with our names for their columns."""

    def __init__(self, parts: Sequence[Any], columns: Mapping[str, str]) -> None:
        self._parts, self._columns = list(parts), dict(columns)
        self._ends = np.cumsum([len(part) for part in self._parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, number: int) -> dict[str, Any]:
        part = int(np.searchsorted(self._ends, number, side="right"))
        row = self._parts[part][number - int(self._ends[part]) + len(self._parts[part])]
        return {ours: row[theirs] for ours, theirs in self._columns.items()}


def pad_sequences(
    sequences: Sequence[npt.ArrayLike], length: int | None = None, value: float = 0
) -> dict[str, np.ndarray]:
    """Sequences of different length as columns: `x`, cut or padded to `length` (the longest), and `lengths`.

    >>> pad_sequences([[1, 2, 3], [4]])["x"].tolist(), pad_sequences([[1, 2, 3], [4]])["lengths"].tolist()
    ([[1, 2, 3], [4, 0, 0]], [3, 1])
    """
    arrays = [array_of_tensor(s) if isinstance(s, torch.Tensor) else np.asarray(s) for s in sequences]
    require(bool(arrays), "sequences", "a list with at least one sequence", sequences)
    most = max(len(a) for a in arrays) if length is None else length
    require(is_count(most), "length", "an int >= 1", length)
    # An empty list is one of floats to numpy; it says nothing about the others.
    filled = [a for a in arrays if len(a)] or arrays
    kind = np.result_type(*{a.dtype for a in filled})
    padded = np.full((len(arrays), most, *filled[0].shape[1:]), value, dtype=kind)
    for row, each in zip(padded, arrays, strict=True):
        if len(each):
            row[: min(len(each), most)] = each[:most]
    return {"x": padded, "lengths": np.array([min(len(a), most) for a in arrays], dtype=np.int64)}
