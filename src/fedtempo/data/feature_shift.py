"""Feature shift: each client sees the same classes through a lens of its own, so features differ and labels do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.errors import DataError, require

Lens = Callable[[np.ndarray], np.ndarray]
"""From images of shape (rows, channels, height, width) to images of the same shape and type."""


def _blurred(images: np.ndarray) -> np.ndarray:
    """Each pixel becomes the mean of the nine around it; at the border, of those that are there, repeated."""
    wide = np.pad(images.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    height, width = images.shape[-2:]
    sums = sum(wide[..., y : y + height, x : x + width] for y in range(3) for x in range(3))
    mean = np.asarray(sums) / 9
    return np.asarray((np.round(mean) if images.dtype.kind in "iu" else mean).astype(images.dtype))


def _inverted(images: np.ndarray) -> np.ndarray:
    """Light becomes dark: the largest possible value (255, or the largest of these images) less the pixel."""
    top = 255 if images.dtype == np.uint8 else images.max(initial=0)
    return np.asarray(top - images).astype(images.dtype)


def _turned(quarters: int) -> Lens:
    return lambda images: np.ascontiguousarray(np.rot90(images, quarters, axes=(-2, -1)))


LENSES: dict[str, Lens] = {
    "none": lambda images: images,
    "rotate_90": _turned(1),
    "rotate_180": _turned(2),
    "rotate_270": _turned(3),
    "invert": _inverted,
    "blur": _blurred,
    "swap_colours": lambda images: np.ascontiguousarray(np.roll(images, 1, axis=1)),
}
"""The lenses that have names."""
ROTATIONS = ("none", "rotate_90", "rotate_180", "rotate_270")


def feature_shift(data: FederatedData, lenses: Sequence[str | Lens] = ROTATIONS) -> FederatedData:
    """The same clients with the same labels; client c sees its images through `lenses[c % len(lenses)]`.

    A lens is a name (`none`, `rotate_90`, `rotate_180`, `rotate_270`, `invert`, `blur`, `swap_colours`) or a function
    of images (rows, channels, height, width). The default is one angle for each client, as FedLab's `RotatedMNIST`
    has it. Use it after the split: all parts of a client, also of a new one, get the client's lens.
    """
    require(bool(lenses) and not isinstance(lenses, str), "lenses", "a list of one or more lenses", lenses)
    for lens in lenses:
        known = callable(lens) or lens in LENSES
        require(known, "lenses", f"{', '.join(LENSES)}, or functions of images", lens)
    images: np.ndarray = np.asarray(data.columns["x"]) if "x" in data.columns else np.empty(0)
    if images.ndim != 4:
        raise DataError(f"x must hold images of shape (channels, height, width). Got rows of shape {images.shape[1:]}.")
    if "swap_colours" in lenses and images[0].shape[0] < 2:
        raise DataError("lenses must leave out swap_colours for images of one channel. Got it.")
    changed = images.copy()
    for client in range(len(data)):
        given = lenses[client % len(lenses)]
        lens = LENSES[given] if isinstance(given, str) else given
        rows = np.concatenate([data.positions(client, part) for part in ("train", "validation", "test")])
        seen = np.asarray(lens(images[rows]))
        same = seen.shape == images[rows].shape and seen.dtype == images.dtype
        require(same, "lenses", f"functions to images of the same shape and type, {images[rows].shape}", seen.shape)
        changed[rows] = seen
    names = ", ".join(lens if isinstance(lens, str) else getattr(lens, "__name__", "own") for lens in lenses)
    description = f"{data.description}, seen through {names}"
    return replace(data, columns={**data.columns, "x": changed}, description=description)
