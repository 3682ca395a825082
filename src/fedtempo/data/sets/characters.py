"""Texts of many speakers as windows of characters for next-character prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedtempo.data.parts import TEST, TRAIN, VALIDATION
from fedtempo.errors import DataError, is_count, is_number, require

ALPHABET = "\n !$&',-.0123456789:;?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz"
"""The characters of the plays, in the order of their code points."""
CHARACTERS = len(ALPHABET) + 1
"""With the place for all others, the 77 outputs of the decaying-K paper."""
_CODES = np.array([ord(character) for character in ALPHABET], dtype=np.uint32)


@dataclass(frozen=True)
class Windows:
    """How texts are cut: `length` characters every `stride`, what follows as the target, the end kept for testing."""

    length: int
    stride: int
    target: str
    validation: float
    test: float
    limit: int | None

    def __post_init__(self) -> None:
        require(is_count(self.length), "window", "an int >= 1", self.length)
        require(is_count(self.stride), "stride", "an int >= 1", self.stride)
        require(self.target in ("sequence", "next"), "target", "'sequence' or 'next'", self.target)
        for name, share in (("validation", self.validation), ("test", self.test)):
            require(is_number(share) and 0 <= share < 1, name, "a fraction in [0, 1)", share)
        require(self.limit is None or is_count(self.limit), "limit", "an int >= 1", self.limit)
        require(self.validation + self.test < 1, "validation + test", "below 1", self.validation + self.test)


def encoded(text: str) -> np.ndarray:
    """Each character's place in the alphabet; one place after the last for any other character."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    places = np.searchsorted(_CODES, codes).clip(max=len(_CODES) - 1)
    return np.where(_CODES[places] == codes, places, len(_CODES)).astype(np.uint8)


def cut(texts: Mapping[str, str], windows: Windows) -> dict[str, np.ndarray]:
    """Columns x, y, owner, part and names; a window never reaches over the end of its part.

    Owners whose training text is too short for one window are left out.
    """
    columns: dict[str, list[np.ndarray]] = {"x": [], "y": [], "owner": [], "part": []}
    names: list[str] = []
    for name, text in texts.items():
        shares = (1.0, windows.validation, windows.test)
        pieces = [_cut_one(p, windows, share) for p, share in zip(_parted(encoded(text), windows), shares, strict=True)]
        if not len(pieces[0][0]):
            continue
        for (x, y), part in zip(pieces, (TRAIN, VALIDATION, TEST), strict=True):
            columns["x"].append(x)
            columns["y"].append(y)
            columns["owner"].append(np.full(len(x), len(names), dtype=np.int64))
            columns["part"].append(np.full(len(x), part, dtype=np.int8))
        names.append(name)
    if not names:
        raise DataError(f"window must be short enough for some role's training text. Got {windows.length}.")
    return {**{name: np.concatenate(values) for name, values in columns.items()}, "names": np.array(names)}


def _parted(codes: np.ndarray, windows: Windows) -> list[np.ndarray]:
    test = len(codes) - round(len(codes) * windows.test)
    validation = test - round(len(codes) * windows.validation)
    return np.split(codes, [validation, test])


def _cut_one(codes: np.ndarray, windows: Windows, share: float) -> tuple[np.ndarray, np.ndarray]:
    views = np.zeros((0, windows.length + 1), dtype=np.uint8)
    if len(codes) > windows.length:
        views = np.lib.stride_tricks.sliding_window_view(codes, windows.length + 1)[:: windows.stride]
    views = views if windows.limit is None else views[: round(windows.limit * share)]
    return views[:, :-1], views[:, 1:] if windows.target == "sequence" else views[:, -1].astype(np.int64)
