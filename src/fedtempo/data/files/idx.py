"""The idx format of MNIST and its relatives: a magic number, the shape, then the numbers, big-endian."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.data.files.safe import check_ratio, kind_of, open_gzip
from fedtempo.errors import DataError

_TYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}


def read_idx(source: Path | bytes, name: str, dimensions: int) -> np.ndarray:
    """The array of a gzipped idx file, which must have this many dimensions."""
    with open_gzip(source, name) as stream:
        magic = stream.exactly(4)
        if magic[:2] != b"\0\0" or magic[2] not in _TYPES or magic[3] != dimensions:
            raise DataError(f"{name} must be an idx file of {dimensions} dimensions. Got {kind_of(magic)}.")
        dtype = _TYPES[magic[2]]
        shape = tuple(np.frombuffer(stream.exactly(4 * dimensions), ">u4").tolist())
        size = math.prod(shape) * dtype.itemsize
        check_ratio(name, stream.packed, size)
        content = stream.exactly(size)
        # Reading on to the end also makes gzip check its own sum.
        if stream.read(1):
            raise DataError(f"{name} is longer than the {size} bytes that its shape {shape} needs.")
    return np.frombuffer(content, dtype).reshape(shape)


def read_images(images: Path | bytes, labels: Path | bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images as (rows, 1, height, width) and their labels; both must have the same number of rows."""
    pixels = read_idx(images, f"{name} images", 3)
    classes = read_idx(labels, f"{name} labels", 1)
    if len(pixels) != len(classes):
        counts = f"{len(pixels)} images and {len(classes)} labels"
        raise DataError(f"{name} must have a label for every image. Got {counts}.")
    return pixels[:, None], classes.astype(np.int64)
