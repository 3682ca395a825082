"""CIFAR-100, from either official archive: the binary one, or the one for Python that most people have."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from fedtempo.data.files.archives import read_tar_gz
from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.files.serialised import array_of, read_serialised
from fedtempo.data.parts import TEST, TRAIN
from fedtempo.data.table import Table
from fedtempo.errors import DataError, require

Labels = Literal["fine", "coarse"]
_PIXELS = 3 * 32 * 32
_CLASSES = {"coarse": 20, "fine": 100}
_BINARY, _PYTHON = "cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"
_Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Coarse labels, fine labels and pixels."""


def cifar100(sources: Sources, labels: Labels = "fine") -> Table:
    """CIFAR-100 as (3, 32, 32) bytes in R, G, B order, with the official parts.

    `labels="fine"` are its 100 classes, `"coarse"` the 20 groups of five that they belong to. All channels are
    normalised with one mean (0.4782) and deviation (0.2682).
    """
    require(labels in get_args(Labels), "labels", "'fine' or 'coarse'", labels)
    archive = next(iter(sources.paths))
    arrays = cached(sources, {}, lambda: _decode(sources, archive))
    columns = {"x": arrays["x"], "y": arrays[labels]}
    return Table("cifar100", columns, parts=arrays["part"], normalise={"x": (0.4782 * 255, 0.2682 * 255)})


def _decode(sources: Sources, archive: str) -> dict[str, np.ndarray]:
    ending, read = (".bin", _records) if archive == _BINARY else ("", _described)
    folder = archive.removesuffix(".tar.gz")
    wanted = {f"{folder}/{name}{ending}": part for name, part in (("train", TRAIN), ("test", TEST))}
    members = dict(read_tar_gz(sources[archive], wanted.__contains__))
    if missing := sorted(set(wanted) - set(members)):
        raise DataError(f"{archive} must hold {missing[0]}. Got {sorted(members)}.")
    pieces = [(*_checked(read(members[name], name), name), part) for name, part in wanted.items()]
    coarse, fine, pixels = (np.concatenate([piece[index] for piece in pieces]) for index in range(3))
    return {
        "x": pixels.reshape(-1, 3, 32, 32),
        "fine": fine.astype(np.int64),
        "coarse": coarse.astype(np.int64),
        "part": np.concatenate([np.full(len(piece[0]), piece[3], dtype=np.int8) for piece in pieces]),
    }


def _records(content: bytes, name: str) -> _Rows:
    """The binary form: a coarse label, a fine one and the pixels, row after row."""
    length = 2 + _PIXELS
    if not content or len(content) % length:
        raise DataError(f"{name} must be records of {length} bytes. Got {len(content)} bytes.")
    rows = np.frombuffer(content, np.uint8).reshape(-1, length)
    return rows[:, 0], rows[:, 1], rows[:, 2:]


def _described(content: bytes, name: str) -> _Rows:
    """The form for Python: a dict of lists and one array. It is read as data; nothing that it names is called."""

    def take(value: Any) -> _Rows:
        pixels = array_of(value[b"data"])
        if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
            raise ValueError(f"rows of {_PIXELS} bytes expected, {pixels.dtype} {pixels.shape} found")
        return _numbers(value[b"coarse_labels"]), _numbers(value[b"fine_labels"]), pixels

    rows: _Rows = read_serialised(content, name, take, "CIFAR-100's")
    return rows


def _numbers(values: Any) -> np.ndarray:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise ValueError("labels must be a list of whole numbers")
    return np.array(values, dtype=np.int64)


def _checked(rows: _Rows, name: str) -> _Rows:
    coarse, fine, pixels = rows
    if not len(pixels) or not len(coarse) == len(fine) == len(pixels):
        raise DataError(f"{name} must have two labels for each image. Got {len(coarse)}, {len(fine)}, {len(pixels)}.")
    for labels, kind in ((coarse, "coarse"), (fine, "fine")):
        if labels.min() < 0 or labels.max() >= _CLASSES[kind]:
            wrong = int(labels.max() if labels.min() >= 0 else labels.min())
            raise DataError(f"{name} must have {kind} labels in [0, {_CLASSES[kind] - 1}]. Got {wrong}.")
    return rows


_CIFAR100_FILES = (
    File(
        _BINARY,
        ("58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",),
        168513733,
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    ),
    File(
        _PYTHON,
        ("85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",),
        169001437,
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    ),
)
CIFAR100 = DataSet(
    name="cifar100",
    load=cifar100,
    files=_CIFAR100_FILES,
    ways=((_BINARY,), (_PYTHON,)),
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
    licence="not stated by the authors",
    citation="Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009)",
    clients="none",
    about="50,000 / 10,000 32x32 colour images of 100 classes in 20 groups",
)
