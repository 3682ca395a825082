"""CIFAR-10, from the official binary archive or the subset archive of the same layout."""

from __future__ import annotations

import numpy as np

from fedtempo.data.files.archives import read_tar_gz
from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.parts import TEST, TRAIN
from fedtempo.data.table import Table
from fedtempo.errors import DataError

_RECORD = 1 + 3 * 32 * 32
_FOLDER = "cifar-10-batches-bin/"
_TEST_BATCH = _FOLDER + "test_batch.bin"


def cifar10(sources: Sources) -> Table:
    """CIFAR-10 as (3, 32, 32) bytes in R, G, B order, with the official parts.

    All channels are normalised with one mean (0.4734) and deviation (0.2516); the papers' code does it for each
    channel on its own, which differs by at most a tenth of a deviation.
    """
    archive = next(iter(sources.paths))
    arrays = cached(sources, {}, lambda: _decode(sources, archive))
    columns = {"x": arrays["x"], "y": arrays["y"]}
    return Table("cifar10", columns, parts=arrays["part"], normalise={"x": (0.4734 * 255, 0.2516 * 255)})


def _decode(sources: Sources, archive: str) -> dict[str, np.ndarray]:
    members = read_tar_gz(sources[archive], lambda name: _is_training(name) or name == _TEST_BATCH)
    names = [name for name, _ in members]
    if _TEST_BATCH not in names or len(names) < 2:
        raise DataError(f"{archive} must hold {_FOLDER}data_batch_1.bin and test_batch.bin. Got {names}.")
    batches = [(_records(content, name), TRAIN if _is_training(name) else TEST) for name, content in members]
    return {
        "x": np.concatenate([rows[:, 1:].reshape(-1, 3, 32, 32) for rows, _ in batches]),
        "y": np.concatenate([rows[:, 0].astype(np.int64) for rows, _ in batches]),
        "part": np.concatenate([np.full(len(rows), part, dtype=np.int8) for rows, part in batches]),
    }


def _is_training(name: str) -> bool:
    return name.startswith(_FOLDER + "data_batch_") and name.endswith(".bin")


def _records(content: bytes, name: str) -> np.ndarray:
    if not content or len(content) % _RECORD:
        raise DataError(f"{name} must be records of {_RECORD} bytes. Got {len(content)} bytes.")
    rows = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    if rows[:, 0].max() > 9:
        raise DataError(f"{name} must have labels in [0, 9]. Got {int(rows[:, 0].max())}.")
    return rows


_CIFAR10_FILES = (
    File(
        "cifar-10-binary.tar.gz",
        ("c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",),
        170052171,
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    ),
    File(
        "cifar-10-binary-subset.tar.gz", ("eb9c0227c9fc9e4af2a8f58b787b94830506d69bac1fb2150115f440e154356e",), 33908307
    ),
)
CIFAR10 = DataSet(
    name="cifar10",
    load=cifar10,
    files=_CIFAR10_FILES,
    ways=(("cifar-10-binary.tar.gz",), ("cifar-10-binary-subset.tar.gz",)),
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
    licence="not stated by the authors",
    citation="Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009)",
    clients="none",
    about="50,000 / 10,000 32x32 colour images of 10 classes (the subset archive: 10,000 / 2,000)",
)
