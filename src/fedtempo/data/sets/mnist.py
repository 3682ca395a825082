"""MNIST and Fashion-MNIST, from the official idx files; MNIST's writers from QMNIST's label files."""

from __future__ import annotations

import numpy as np

from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.idx import read_idx, read_images
from fedtempo.data.parts import TEST, TRAIN
from fedtempo.data.table import Table
from fedtempo.errors import DataError

_WRITER = 2
"""The column of QMNIST's label files with the NIST writer id; column 0 is the class."""
_QMNIST = {"train": "qmnist-train-labels-idx2-int.gz", "t10k": "qmnist-test-labels-idx2-int.gz"}


def mnist(sources: Sources) -> Table:
    """MNIST as (1, 28, 28) bytes with the official parts; natural clients are the writers.

    No writer is in both official parts, so `split(natural(), test=0.2)` (fractions inside each writer) is the
    way to clients that have both; with the official parts, use a split by label. Pixels are normalised with
    the usual mean 0.1307 and deviation 0.3081 (of the training images, as fractions of 255).
    """
    arrays = cached(sources, {}, lambda: _decode(sources))
    return Table(
        "mnist",
        {"x": arrays["x"], "y": arrays["y"]},
        keys=arrays.get("writer"),
        parts=arrays["part"],
        normalise={"x": (0.1307 * 255, 0.3081 * 255)},
    )


def fashion_mnist(sources: Sources) -> Table:
    """Fashion-MNIST as (1, 28, 28) bytes with the official parts, normalised with mean 0.2860 and deviation 0.3530."""
    arrays = cached(sources, {}, lambda: _decode(sources))
    columns = {"x": arrays["x"], "y": arrays["y"]}
    return Table("fashion_mnist", columns, parts=arrays["part"], normalise={"x": (0.2860 * 255, 0.3530 * 255)})


def _decode(sources: Sources) -> dict[str, np.ndarray]:
    pieces = [_part(sources, prefix, part) for prefix, part in (("train", TRAIN), ("t10k", TEST))]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _part(sources: Sources, prefix: str, part: int) -> dict[str, np.ndarray]:
    images, labels = f"{prefix}-images-idx3-ubyte.gz", f"{prefix}-labels-idx1-ubyte.gz"
    x, y = read_images(sources[images], sources[labels], f"{sources.name} {prefix}")
    columns = {"x": x, "y": y, "part": np.full(len(y), part, dtype=np.int8)}
    if _QMNIST[prefix] in sources:
        # The test file goes on with QMNIST's 50,000 rediscovered digits after MNIST's 10,000.
        rows = read_idx(sources[_QMNIST[prefix]], _QMNIST[prefix], 2)[: len(y)]
        if len(rows) != len(y) or rows.shape[1] <= _WRITER or (rows[:, 0] != y).any():
            raise DataError(f"{_QMNIST[prefix]} must describe the digits of {labels}. Got other classes or fewer rows.")
        columns["writer"] = rows[:, _WRITER].astype(np.int64)
    return columns
