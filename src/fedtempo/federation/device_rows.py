"""Rows on an accelerator: sent there once for the whole run, where they fit."""

from __future__ import annotations

import numpy as np
import torch

from fedtempo.data.federated import FederatedData
from fedtempo.tasks import Batch

SHARE_OF_FREE_MEMORY = 0.25
"""The share of the free memory that rows may take. `backends/memory.py` plans half of the rest for models."""


class DeviceRows:
    """All rows as tensors on one device. They are sent at the first use, or never where they do not fit."""

    def __init__(self) -> None:
        self._columns: Batch | None = None
        self._tried = False

    def client(self, data: FederatedData, client: int, part: str, dtype: torch.dtype, device: str) -> Batch:
        """One client's rows of a part. They stand together in the columns, unless the data has an order of its own."""
        self._send(data, dtype, device)
        rows = data.positions(client, part)
        if self._columns is None or data.order is not None or not len(rows):
            return self.take(data, rows, dtype, device)
        return {name: column[rows[0] : rows[-1] + 1] for name, column in self._columns.items()}

    def take(self, data: FederatedData, rows: np.ndarray, dtype: torch.dtype, device: str) -> Batch:
        """Rows of the columns by their number, in the shape of `rows`: from the device's copy, or sent now."""
        self._send(data, dtype, device)
        if self._columns is None:
            return {name: tensor.to(device) for name, tensor in data.take(rows, dtype).items()}
        where = torch.from_numpy(np.ascontiguousarray(rows)).to(device)
        return {name: column[where] for name, column in self._columns.items()}

    def _send(self, data: FederatedData, dtype: torch.dtype, device: str) -> None:
        if not self._tried:
            self._tried = True
            self._columns = _sent(data, dtype, device)

    def __reduce__(self) -> tuple[type[DeviceRows], tuple[()]]:
        # Another process has its own copy, if it has the device at all.
        return DeviceRows, ()


def _sent(data: FederatedData, dtype: torch.dtype, device: str) -> Batch | None:
    """Every column on the device; None where they do not fit, or where rows are read from files when needed."""
    free = free_memory(device)
    if free is None or not all(isinstance(column, np.ndarray) for column in data.columns.values()):
        return None
    count = len(next(iter(data.columns.values())))
    # What a row becomes (type, normalised numbers) is seen on the first one.
    needed = count * sum(tensor.nbytes for tensor in data.take(np.zeros(1, dtype=np.int64), dtype).values())
    if needed > SHARE_OF_FREE_MEMORY * free:
        return None
    try:
        return {name: tensor.to(device) for name, tensor in data.take(np.arange(count), dtype).items()}
    except torch.OutOfMemoryError:  # somebody else has taken what was free
        return None


def free_memory(device: str) -> int | None:
    """Free bytes of an accelerator; None where torch cannot tell."""
    place = torch.device(device)
    module = getattr(torch, place.type, None)
    ask = getattr(module, "mem_get_info", None)
    return None if ask is None else int(ask(place)[0])
