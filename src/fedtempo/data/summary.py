"""What a division of data among clients looks like: numbers, and a picture of clients by labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.data.parts import PARTS, TRAIN
from fedtempo.data.splits import dirichlet, louvain
from fedtempo.data.table import Table, natural
from fedtempo.support.display import show, shown_by
from fedtempo.support.json_text import JsonTable

if TYPE_CHECKING:
    from rich.text import Text

shown_by("fedtempo.report")  # a script that only divides data does not load training, which says so elsewhere
_SHADES = " ░▒▓█"


def describe(data: FederatedData) -> JsonTable:
    """Clients, rows, rows per client, label distribution and the hash of the division, as plain values."""
    sizes = {part: data.sizes(part) for part in PARTS}
    everything = sum(sizes.values(), np.zeros(len(data), dtype=np.int64))
    return {
        "division": data.description,
        "clients": len(data.clients),
        "new_clients": len(data.held_out),
        "rows": {part: int(counts.sum()) for part, counts in sizes.items()},
        "rows_per_client": {
            "smallest": int(everything.min()),
            "median": float(np.median(everything)),
            "mean": float(everything.mean()),
            "largest": int(everything.max()),
        },
        "labels": client_by_label(data).sum(axis=0).tolist(),
        "digest": data.digest(),
    }


def client_by_label(data: FederatedData) -> np.ndarray:
    """How often each client has each label, over all its rows; shape (clients, labels).

    Targets of several labels at once (booleans, a column for each) and sequences count every label; without labels
    there are no columns.
    """
    labels = data.columns.get("y")
    if labels is None or np.issubdtype(labels.dtype, np.floating):
        return np.zeros((len(data), 0), dtype=np.int64)
    labels = labels[:]  # all of them, also of a column that is read row by row
    several = labels.dtype == bool and labels.ndim > 1
    labels = labels.astype(np.int64) if labels.dtype == bool and not several else labels
    classes = labels.shape[1] if several else int(labels.max()) + 1
    counts = np.zeros((len(data), classes), dtype=np.int64)
    for client in range(len(data)):
        own = labels[np.concatenate([data.positions(client, part) for part in PARTS])]
        known = own[own >= 0] if not several else own
        counts[client] = own.sum(axis=0) if several else np.bincount(known.reshape(-1), minlength=classes)
    return counts


def divided_by_default(table: Table, seed: int = 0) -> FederatedData:
    """The division shown when none is asked for: natural clients or communities, else Dirichlet(0.5) over 10.

    Where an official part has clients of its own (MNIST's writers), rows are parted inside each client instead; where
    the parts are the user's, those clients are new ones.
    """
    if table.edges is not None:
        return table.split(louvain(clients=5), validation=0.1, test=0.1, seed=seed)
    if table.keys is None:
        return table.split(dirichlet(clients=10, alpha=0.5), seed=seed)
    trained = table.parts is None or len(np.setdiff1d(table.keys, table.keys[table.parts == TRAIN])) == 0
    if trained or table.own_parts:
        return table.split(natural(), new_clients=0 if trained else "untrained", seed=seed)
    return table.split(natural(), test=0.2, validation=0.0, seed=seed)


def heat_map(counts: np.ndarray, rows: int = 24, columns: int = 62) -> Text:
    """The client-by-label picture in characters; neighbours are drawn together where there are too many."""
    shown = merged_rows(merged_rows(counts, rows).T, columns).T
    most = max(1, int(shown.max(initial=1)))
    shades = np.ceil(shown / most * (len(_SHADES) - 1)).astype(int)
    from rich.text import Text

    lines = ["".join(_SHADES[shade] for shade in row) for row in shades]
    return Text("\n".join(f"|{line}|" for line in lines))


def merged_rows(counts: np.ndarray, most: int) -> np.ndarray:
    """At most so many rows: neighbours are added up.

    >>> merged_rows(np.array([[1, 0], [2, 0], [0, 3]]), most=2).tolist()
    [[3, 0], [0, 3]]
    """
    if len(counts) <= most:
        return counts
    return np.stack([group.sum(axis=0) for group in np.array_split(counts, most)])


def picture(data: FederatedData, path: str | Path) -> Path:
    """Draw clients by labels into an HTML file that needs nothing else; returns its path."""
    drawn: Path = show(data, "page", Path(path))
    return drawn
