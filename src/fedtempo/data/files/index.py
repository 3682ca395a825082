"""Files that say which rows each client has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedtempo.data.files.archives import read_zip
from fedtempo.data.files.safe import read_npy, read_text
from fedtempo.errors import DataError

LARGEST = 1 << 30
"""A larger index has more than a hundred million rows."""


def read_index(path: Path) -> Mapping[str, list[int] | np.ndarray]:
    """`{client: rows}` from a JSON file, or from an npz file with an array for each client."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        raise DataError(f"clients must be an index file of at most {LARGEST >> 20} MiB. Got {path.name!r}.")
    if path.suffix == ".npz":
        members = read_zip(path, lambda name: name.endswith(".npy"))
        return {name.removesuffix(".npy"): read_npy(content, f"{path.name}: {name}") for name, content in members}
    try:
        found = json.loads(read_text(path.read_bytes(), path.name))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path.name} must be JSON of the form {{client: [rows]}}: {error}.") from None
    if not isinstance(found, dict):
        raise DataError(f"{path.name} must be JSON of the form {{client: [rows]}}. Got a {type(found).__name__}.")
    return found
