"""Rotated copies of images, made inside each client's training, validation and test rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedtempo.data.federated import FederatedData

TURNS = 4


def rotated(data: FederatedData) -> FederatedData:
    """Every image four times: as it is and turned by 90, 180 and 270 degrees; same label, client and part.

    Because it works on rows that already have their client and part, a turned copy of a test image is a test image.
    """
    rows = len(data.columns["x"])
    columns = {
        name: np.concatenate([np.asarray(column)] * TURNS) for name, column in data.columns.items() if name != "x"
    }
    columns["x"] = np.concatenate([np.rot90(data.columns["x"], turn, axes=(-2, -1)) for turn in range(TURNS)])
    order = np.arange(int(data.bounds[-1, -1])) if data.order is None else data.order
    starts, stops = data.bounds[:, :-1].reshape(-1), data.bounds[:, 1:].reshape(-1)
    copies = [order[a:b] + turn * rows for a, b in zip(starts, stops, strict=True) for turn in range(TURNS)]
    return replace(
        data,
        columns=columns,
        bounds=data.bounds * TURNS,
        order=np.concatenate(copies),
        description=f"{data.description}, rotated",
    )
