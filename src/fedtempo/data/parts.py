"""The parts of a client's rows, and rows without a client."""

from __future__ import annotations

from typing import Literal

Part = Literal["train", "validation", "test"]
"""One of the parts, by its name."""
TRAIN, VALIDATION, TEST = 0, 1, 2
PARTS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
UNUSED = -1
"""The client number of a row that belongs to no client."""
