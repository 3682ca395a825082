"""FederatedData: columns and offsets. A client is a slice, so a million clients cost no Python objects."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtempo.data.layout import choose_held_out
from fedtempo.data.mapped_pages import MappedPages
from fedtempo.data.own_clients import ClientData, as_one_table
from fedtempo.data.parts import PARTS
from fedtempo.data.preparation import Preparation
from fedtempo.errors import DataError
from fedtempo.support.display import html_of
from fedtempo.tasks import Batch

LARGEST_READ = 1 << 30
"""Bytes of a column up to which every number is checked before a run; of a larger one, rows all over it."""
ROWS_SAMPLED = 4096


@dataclass(frozen=True)
class FederatedData:
    """The rows of all clients, client after client; inside a client training, validation, then test rows.

    `bounds[i]` holds four positions: where client i's training, validation and test rows begin, and where
    they end. `order` maps positions to rows of the columns where these are not sorted by client.
    """

    columns: Mapping[str, np.ndarray]
    """The rows by column: `x` or several inputs, the target `y`, and `sample_weight` where rows are weighed."""
    bounds: np.ndarray
    order: np.ndarray | None = None
    held_out: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Numbers of the new clients: they never train, and are scored as new users."""
    normalise: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mean and scale by column: a batch holds (value - mean) / scale."""
    names: Sequence[str] | None = None
    """The clients' names, for messages; None names them by number."""
    outputs: np.ndarray | None = None
    """The number of classes of each client, where labels are numbered client by client."""
    description: str = "clients"
    stand_in: int | None = None
    """Where only the clients' sizes are known, as on the server of a deployment: so many rows, the same for all
    clients, stand in for theirs. What is allocated then does not depend on the sizes that somebody else claims."""
    preparation: Preparation | None = field(default=None, repr=False, metadata={"identity": False})
    """What was done to the rows of a frame before training; the columns are what came of it."""

    @classmethod
    def from_clients(
        cls,
        clients: Sequence[ClientData],
        *,
        validation: Sequence[ClientData] | float = 0.0,
        test: Sequence[ClientData] | float = 0.0,
        new_clients: float | int = 0,
        names: Sequence[str] | None = None,
        outputs: Sequence[int] | None = None,
        seed: int = 0,
    ) -> FederatedData:
        """Clients from your own arrays or tensors: a list of `(x, y)` or of dicts of columns.

        `validation` and `test` are lists of the same form, or fractions of each client's rows. `new_clients` is the
        number, or the fraction, of clients that never train and are scored as new users. `names` are the clients'
        names. `outputs` is each client's number of classes, where labels are numbered client by client. `seed` decides
        which rows and clients fractions select.
        """
        columns, bounds, order = as_one_table(clients, validation, test, seed)
        data = cls(columns, bounds, order, choose_held_out(len(bounds), new_clients, seed))
        sizes = None if outputs is None else np.asarray(outputs, dtype=np.int64)
        for name, given in (("names", names), ("outputs", sizes)):
            if given is not None and len(given) != len(data):
                raise DataError(f"{name} must have one entry per client, {len(data)}. Got {len(given)}.")
        return replace(data, names=None if names is None else [str(name) for name in names], outputs=sizes)

    def __len__(self) -> int:
        return len(self.bounds)

    def __repr__(self) -> str:
        sizes = self.sizes("train")
        return (
            f"FederatedData({self.description}: {len(self.clients)} clients, {len(self.held_out)} new clients, "
            f"{int(sizes.sum())} training rows, {int(sizes.min())} to {int(sizes.max())} per client)"
        )

    def _repr_html_(self) -> str:
        return html_of(self)

    @cached_property
    def clients(self) -> np.ndarray:
        """The clients that take part in training, in ascending order."""
        return np.setdiff1d(np.arange(len(self), dtype=np.int64), self.held_out)

    @cached_property
    def _mapped_pages(self) -> MappedPages | None:
        pages = MappedPages(self.columns.values())
        return pages if pages.mapped else None

    def sizes(self, part: str = "train") -> np.ndarray:
        """How many rows of this part each client has."""
        index = _part(part)
        return np.asarray(self.bounds[:, index + 1] - self.bounds[:, index])

    def positions(self, client: int, part: str = "train") -> np.ndarray:
        """The row numbers, in the columns, of this client's rows of a part."""
        start, stop = self._bounds(client, part)
        return np.arange(start, stop) if self.order is None else np.asarray(self.order[start:stop])

    def client(self, client: int, part: str = "train", dtype: torch.dtype = torch.float32) -> Batch:
        """One client's rows of a part as tensors by column; floating-point columns come in `dtype`.

        For `result.personalize` after a run in another type, ask for that type: float32 rounds numbers of float64.
        """
        if isinstance(client, bool) or not isinstance(client, (int, np.integer)) or not 0 <= client < len(self):
            raise DataError(f"client must be an int in [0, {len(self)}). Got {client!r}.")
        start, stop = self._bounds(client, part)
        rows = slice(start, stop) if self.order is None else self.order[start:stop]
        batch = {name: self._tensor(name, column[rows], dtype) for name, column in self.columns.items()}
        if self._mapped_pages is not None:
            self._mapped_pages.note(sum(tensor.nbytes for tensor in batch.values()))
        return batch

    def _bounds(self, client: int, part: str) -> tuple[int, int]:
        index = _part(part)
        start, stop = int(self.bounds[client, index]), int(self.bounds[client, index + 1])
        return (start, stop) if self.stand_in is None else (0, min(stop - start, self.stand_in))

    def take(self, rows: np.ndarray, dtype: torch.dtype = torch.float32) -> Batch:
        """Any rows of the columns as tensors, in the shape of `rows`."""
        flat = rows.reshape(-1)
        taken = {name: _taken(column, flat) for name, column in self.columns.items()}
        batch = {name: self._tensor(name, values, dtype) for name, values in taken.items()}
        if self._mapped_pages is not None:
            self._mapped_pages.note(sum(tensor.nbytes for tensor in batch.values()))
        return {name: t.reshape(*rows.shape, *t.shape[1:]) for name, t in batch.items()}

    def _tensor(self, name: str, values: np.ndarray, dtype: torch.dtype) -> Tensor:
        if not values.flags.writeable:
            values = values.copy()
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        if name in self.normalise:
            mean, deviation = self.normalise[name]
            return tensor.to(dtype).sub_(mean).div_(deviation)
        if tensor.is_floating_point():
            return tensor.to(dtype)
        return tensor.to(torch.int64) if tensor.dtype != torch.bool else tensor

    def label_counts(self, part: str = "train") -> np.ndarray:
        """Rows per client and class; shape (clients, classes)."""
        labels = self.columns["y"]
        classes = int(labels.max()) + 1
        counts = np.zeros((len(self), classes), dtype=np.int64)
        for client in range(len(self)):
            counts[client] = np.bincount(labels[self.positions(client, part)], minlength=classes)
        return counts

    def digest(self) -> str:
        """A hash of who owns which rows and which clients are new; the columns count by shape and type."""
        state = hashlib.sha256()
        shapes = [(name, c.shape, str(c.dtype)) for name, c in sorted(self.columns.items())]
        state.update(repr(shapes).encode())
        for array in (self.bounds, self.order, self.held_out, self.outputs):
            state.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        return state.hexdigest()

    def check(self) -> None:
        """Every training client has training data, no column has a name of ours, and nothing is NaN or infinite."""
        pages = self._mapped_pages  # first: it notes what the process holds before anything is read
        empty = self.clients[self.sizes("train")[self.clients] == 0]
        if len(empty):
            raise DataError(
                f"client {self.name_of(int(empty[0]))} has no training data ({len(empty)} such clients). "
                "Leave such clients out, split with min_samples=1, or use fewer clients."
            )
        for name in self.columns:
            if name.startswith("_"):
                rule = "must not begin with an underscore, as the library's own notes in a batch do"
                raise DataError(f"names of columns {rule}. Got {name!r}.")
        self.check_finite()
        if pages is not None:
            pages.release()

    def check_finite(self) -> None:
        """Nothing is NaN or infinite; the error names the client and its row."""
        for name, column in self.columns.items():
            if isinstance(column, np.ndarray) and np.issubdtype(column.dtype, np.floating):
                self._check_finite(name, column)

    def _check_finite(self, name: str, column: np.ndarray) -> None:
        stride = max(1, len(column) // ROWS_SAMPLED) if column.nbytes > LARGEST_READ else 1
        column = column[::stride]
        rows_at_once = max(1, (1 << 22) // max(1, int(np.prod(column.shape[1:]))))
        for start in range(0, len(column), rows_at_once):
            chunk = column[start : start + rows_at_once]
            if not np.isfinite(chunk).all():
                bad = np.argwhere(~np.isfinite(chunk.reshape(len(chunk), -1)).all(axis=1))[0, 0]
                row = (start + int(bad)) * stride
                raise DataError(f"column {name!r} must be finite. Got NaN or infinity in {self._owner(row)}.")

    def _owner(self, row: int) -> str:
        """Whose row of the columns this is, and which of that client's rows."""
        places = [row] if self.order is None else np.flatnonzero(self.order == row).tolist()
        if not places or places[0] >= self.bounds[-1, -1]:
            return f"row {row}, which no client has"
        client = int(np.searchsorted(self.bounds[:, -1], places[0], side="right"))
        part = max((part for part in PARTS if self.bounds[client, PARTS[part]] <= places[0]), key=PARTS.__getitem__)
        inside = places[0] - int(self.bounds[client, PARTS[part]])
        return f"row {inside} of the {part} rows of client {self.name_of(client)}"

    def name_of(self, client: int) -> str:
        """The client's natural name, or its number."""
        return str(client) if self.names is None else f"{client} ({self.names[client]})"


def _taken(column: Any, rows: np.ndarray) -> np.ndarray:
    """Rows of an array, or of a column that is read when it is needed (`data.lazy`)."""
    return np.take(column, rows, axis=0) if isinstance(column, np.ndarray) else np.asarray(column[rows])


def _part(part: str) -> int:
    if part not in PARTS:
        raise DataError(f"part must be one of {', '.join(PARTS)}. Got {part!r}.")
    return PARTS[part]
