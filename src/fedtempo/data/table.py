"""A data set before it is divided among clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.data.layout import (
    choose_held_out,
    completed_parts,
    drawn_parts,
    layout,
    listed,
    repaired,
    without_training_rows,
)
from fedtempo.data.parts import PARTS, UNUSED
from fedtempo.errors import DataError, is_count, require
from fedtempo.randomness import generator
from fedtempo.tasks import IGNORED

Assign = Callable[["Table", np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Table:
    """Columns of equal length, arrays or memory maps, with what is known about the rows.

    `keys` names the natural client of each row (writer, user, role), and `parts` its official part: training,
    validation or test. `normalise` has a column's (mean, standard deviation). The column is normalised with them when
    it is read, so images can stay bytes in memory.
    """

    name: str
    columns: Mapping[str, np.ndarray]
    keys: np.ndarray | None = None
    parts: np.ndarray | None = None
    normalise: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    key_names: Sequence[str] | None = None
    """The natural clients' names, where `keys` holds numbers into this list."""
    edges: np.ndarray | None = None
    """For rows that are the nodes of a graph: pairs of rows that are linked, each pair once; shape (edges, 2)."""
    after: Callable[[FederatedData], FederatedData] | None = None
    """Applied once rows have their clients and parts, for what must not cross them: rotated copies, subgraphs."""
    own_parts: bool = False
    """Whether the parts are the user's own: a test row of theirs is never trained on, whatever fractions a split asks
    for. Those of published data sets are redrawn inside each client where papers do so."""

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns.items()}
        if not lengths or min(lengths.values()) == 0:
            raise DataError(f"data set {self.name!r} has no rows.")
        if len(set(lengths.values())) > 1:
            raise DataError(f"the columns of data set {self.name!r} must have equal lengths. Got {lengths}.")
        if "y" in self.columns and not isinstance(self.columns["y"], np.ndarray):
            # Splits and tasks look at all labels, so a column that is read row by row is read once, here.
            object.__setattr__(self, "columns", {**self.columns, "y": np.asarray(self.columns["y"][:])})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {tuple(column.shape[1:]) or ''}".strip() for name, column in self.columns.items())
        clients = "" if self.keys is None else f", {len(np.unique(self.keys))} natural clients"
        return f"Table({self.name}: {len(self)} rows of {columns}{clients})"

    @property
    def labels(self) -> np.ndarray:
        """The class of each row; label-based splits need it."""
        labels = self.columns.get("y")
        if labels is None or labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise DataError(f"data set {self.name!r} has no class labels to split by.")
        return np.asarray(labels)

    def split(
        self,
        split: Split | None = None,
        *,
        new_clients: float | int | Sequence[int] | Literal["untrained"] = 0,
        validation: float | None = None,
        test: float | None = None,
        seed: int = 0,
        min_samples: int | None = None,
        relabel: bool = False,
    ) -> FederatedData:
        """Divide the rows among clients; without a `split`, by the natural clients.

        Inside each client, `validation` and `test` are fractions of its rows. By default official parts are kept, and
        a data set without them uses 0.2 for each. Your own parts (a `part` column, a mapping from parts) always stay;
        a fraction then makes a part that you did not give, out of the training rows.

        `new_clients` are held out of training: a fraction of the clients, their number, or a list of them.
        `"untrained"` holds out the clients without rows in the official training part.

        `min_samples` repairs clients with fewer training rows by moving rows from the largest ones; without it a
        client without training rows is an error. `relabel` numbers each client's own classes from 0, so that heads can
        have different sizes.
        """
        require(split is None or isinstance(split, Split), "split", "a split, such as iid(10), or None", split)
        require(is_count(seed, 0), "seed", "an int >= 0", seed)
        require(isinstance(relabel, bool), "relabel", "True or False", relabel)
        split = split or natural()
        asked = int(split.settings.get("clients") or 0)
        # Checked before anything is drawn: a number of clients from a file may cost more time and memory than there is.
        if asked > len(self):
            raise DataError(f"clients must be an int in [1, {len(self)}] (the number of rows). Got {asked}.")
        owner = split.assign(self, seed)
        clients = max(asked, int(owner.max()) + 1)
        part = self._parts(owner, clients, validation, test, seed)
        # Before rows are moved to repair small clients: whose rows they were decides who a client is.
        names = _names(self, owner) if split.name == "natural" else split.names
        if min_samples is not None:
            require(is_count(min_samples), "min_samples", "an int >= 1", min_samples)
            owner, part = repaired(owner, part, clients, min_samples)
        bounds, order = layout(owner, part, clients)
        data = FederatedData(
            self.columns,
            bounds,
            order,
            self._held_out(owner, clients, new_clients, seed),
            self.normalise,
            names=names,
            description=f"{self.name} by {split!r}",
        )
        data = relabelled(data) if relabel else data
        data = self.after(data) if self.after else data
        data.check()
        return data

    def _parts(
        self, owner: np.ndarray, clients: int, validation: float | None, test: float | None, seed: int
    ) -> np.ndarray:
        """The part of each row: the official one, or one that is drawn inside its client."""
        if self.parts is None or (not self.own_parts and (validation is not None or test is not None)):
            return drawn_parts(owner, clients, validation, test, seed)
        if validation is None and test is None:
            return np.asarray(self.parts)
        return completed_parts(owner, np.asarray(self.parts), clients, validation, test, seed)

    def _held_out(
        self, owner: np.ndarray, clients: int, new_clients: float | int | Sequence[int] | str, seed: int
    ) -> np.ndarray:
        if isinstance(new_clients, (list, tuple)):
            return listed(clients, new_clients)
        if not isinstance(new_clients, str):
            return choose_held_out(clients, new_clients, seed)  # type: ignore[arg-type]
        known = new_clients == "untrained" and self.parts is not None
        require(known, "new_clients", "a fraction, an int, or 'untrained' for data with official parts", new_clients)
        return without_training_rows(owner, np.asarray(self.parts), clients)


@dataclass(frozen=True)
class Split:
    """A rule that names a client for every row of a table; -1 leaves the row out."""

    name: str
    settings: Mapping[str, Any]
    rule: Assign = field(compare=False, repr=False)
    names: tuple[str, ...] | None = None
    """The clients' names, where the rule knows them."""

    def assign(self, table: Table, seed: int) -> np.ndarray:
        """The client of each row."""
        return self.rule(table, generator(seed, "split", self.name))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.settings.items())})"


def natural(clients: int | None = None, min_rows: int = 1) -> Split:
    """The data set's own clients; the `clients` with most rows if a number is given."""
    require(clients is None or is_count(clients), "clients", "an int >= 1", clients)
    require(is_count(min_rows), "min_rows", "an int >= 1", min_rows)

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        if table.keys is None:
            raise DataError(f"data set {table.name!r} has no natural clients. Use dirichlet, iid or another split.")
        names, owner, counts = np.unique(table.keys, return_inverse=True, return_counts=True)
        chosen = np.argsort(-counts, kind="stable")
        chosen = chosen[counts[chosen] >= min_rows]
        largest = int(counts.max())
        require(len(chosen) > 0, "min_rows", f"an int in [1, {largest}] (the rows of the largest client)", min_rows)
        enough = f"an int in [1, {len(chosen)}] (the natural clients with at least min_rows rows)"
        require(clients is None or clients <= len(chosen), "clients", enough, clients)
        chosen = np.sort(chosen[:clients])
        renumbered = np.full(len(names), UNUSED, dtype=np.int64)
        renumbered[chosen] = np.arange(len(chosen))
        return np.asarray(renumbered[owner])

    return Split("natural", {"clients": clients, "min_rows": min_rows}, assign)


def _names(table: Table, owner: np.ndarray) -> list[str]:
    assert table.keys is not None
    used = owner != UNUSED
    _, first = np.unique(owner[used], return_index=True)
    keys = table.keys[used][first]
    return [str(key) if table.key_names is None else table.key_names[int(key)] for key in keys]


def relabelled(data: FederatedData) -> FederatedData:
    """Number each client's classes from 0, by the sorted classes of its training rows; ignored labels stay ignored."""
    labels = np.asarray(data.columns["y"]).copy()
    outputs = np.zeros(len(data), dtype=np.int64)
    for client in range(len(data)):
        classes = np.unique(labels[data.positions(client, "train")])
        if len(classes) and (classes == IGNORED).all():
            raise DataError(f"client {data.name_of(client)} has no training row with a label; relabel needs one.")
        classes = classes[classes != IGNORED]
        outputs[client] = len(classes)
        for part in PARTS:
            rows = data.positions(client, part)
            rows = rows[labels[rows] != IGNORED]
            places = np.searchsorted(classes, labels[rows])
            known = places < len(classes)
            known[known] = classes[places[known]] == labels[rows][known]
            if not known.all():
                rows_of = f"client {data.name_of(client)} has a {part} row"
                raise DataError(f"{rows_of} of a class that it never trains on; relabel needs all.")
            labels[rows] = places
    return replace(data, columns={**data.columns, "y": labels}, outputs=outputs)
