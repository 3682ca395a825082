"""A data set before it is divided among clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedtempo.errors import DataError, is_count, require

if TYPE_CHECKING:
    from fedtempo.data.federated import FederatedData
    from fedtempo.data.splits import Split

TRAIN, VALIDATION, TEST = 0, 1, 2
PARTS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}


@dataclass(frozen=True)
class Table:
    """Columns of equal length, arrays or memory maps, with what is known about the rows.

    `keys` names the natural client of each row (writer, user, role), `parts` the official train,
    validation or test part, `normalise` the (mean, standard deviation) that a column is brought to
    zero and one with when it is read, so that images can stay bytes.
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

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns.items()}
        if not lengths or min(lengths.values()) == 0:
            raise DataError(f"data set {self.name!r} has no rows.")
        if len(set(lengths.values())) > 1:
            raise DataError(f"the columns of data set {self.name!r} must have equal lengths. Got {lengths}.")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

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
        new_clients: float | int = 0,
        validation: float | None = None,
        test: float | None = None,
        seed: int = 0,
        min_samples: int | None = None,
        relabel: bool = False,
    ) -> FederatedData:
        """Divide the rows among clients; without a `split`, by the natural clients.

        Inside each client, `validation` and `test` are fractions of its rows (0.2 each unless the data set has
        official parts, which are kept). `new_clients`, a fraction or a number, are held out of training.
        `min_samples` repairs clients with fewer training rows by moving rows from the largest ones; without
        it such a client is an error. `relabel` numbers each client's own classes from 0, so that heads can
        have different sizes.
        """
        from fedtempo.data.division import divide
        from fedtempo.data.splits import Split as Rule

        require(split is None or isinstance(split, Rule), "split", "a split, such as iid(10), or None", split)
        require(is_count(seed, 0), "seed", "an int >= 0", seed)
        require(isinstance(relabel, bool), "relabel", "True or False", relabel)

        return divide(self, split, new_clients, validation, test, seed, min_samples, relabel)
