"""A division on disk: who owns which rows, with the hash that tells whether it is still the same."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.data.files.archives import read_npz
from fedtempo.data.table import Table, relabelled
from fedtempo.errors import DataError
from fedtempo.support.files import write_atomically

_KINDS = {"bounds": "i", "order": "i", "held_out": "i", "relabelled": "b", "names": "U", "about": "U"}


def save_division(data: FederatedData, path: str | Path) -> str:
    """Write the division (not the data) as an npz file of plain arrays; returns its hash."""
    digest = data.digest()
    order = np.arange(int(data.bounds[-1, -1])) if data.order is None else data.order
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        allow_pickle=False,
        bounds=data.bounds,
        order=order.astype(np.int64),
        held_out=data.held_out,
        relabelled=np.array(data.outputs is not None),
        names=np.array([] if data.names is None else list(data.names), dtype=np.str_),
        about=np.array([digest, data.description]),
    )
    write_atomically(Path(path), stream.getvalue())
    return digest


def load_division(table: Table, path: str | Path) -> FederatedData:
    """The clients of a saved division over the same table; another table or an altered file is refused."""
    if table.after is not None:
        raise DataError(
            f"data set {table.name!r} is changed after its split. Split it again from the same seed instead."
        )
    arrays = read_npz(Path(path), _KINDS)
    digest, description = (str(text) for text in arrays["about"])
    order, bounds = arrays["order"], arrays["bounds"]
    if len(order) and not 0 <= order.min() <= order.max() < len(table):
        raise DataError(f"{path} must divide {len(table)} rows. Got row {int(order.max())}.")
    in_order = len(order) == len(table) and bool((np.diff(order) == 1).all())
    names = arrays["names"].tolist() or None
    data = FederatedData(
        table.columns, bounds, None if in_order else order, arrays["held_out"], table.normalise, names,
        description=description,
    )  # fmt: skip
    data = relabelled(data) if bool(arrays["relabelled"]) else data
    if data.digest() != digest:
        raise DataError(f"{path} must give the division {digest}. Got {data.digest()}: other data, or an altered file.")
    return replace(data, description=description)
