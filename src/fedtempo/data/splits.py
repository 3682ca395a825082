"""Splits: who gets which rows. Each is a value with a name and settings, deterministic from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from fedtempo.data.benchmark_splits import extended_dirichlet, hsu_dirichlet, niid_bench, pachinko, pfllib
from fedtempo.data.files.index import read_index
from fedtempo.data.parts import UNUSED
from fedtempo.data.table import Split, Table, natural
from fedtempo.errors import DataError, is_count, is_number, require


def iid(clients: int) -> Split:
    """Rows dealt out at random, in equal numbers.

    >>> table = Table("rows", {"x": np.zeros((6, 1))})
    >>> iid(clients=2).assign(table, seed=0).tolist()  # the client of every row
    [1, 0, 1, 0, 0, 1]
    """
    _check_clients(clients)

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        owner = np.arange(len(table)) % clients
        return rng.permutation(owner)

    return Split("iid", {"clients": clients}, assign)


def dirichlet(clients: int, alpha: float, equal: bool = False) -> Split:
    """Each class is divided among the clients in proportions drawn from Dirichlet(alpha).

    `equal=True` draws a class mixture per client instead and gives every client the same number of rows, as in
    the FedNAR experiments.

    >>> table = Table("rows", {"y": np.repeat([0, 1], 5)})
    >>> dirichlet(clients=2, alpha=0.3).assign(table, seed=2).tolist()
    [0, 0, 1, 0, 1, 1, 1, 1, 1, 1]
    """
    _check_clients(clients)
    require(is_number(alpha) and alpha > 0, "alpha", "a number > 0", alpha)
    rule = _dirichlet_equal if equal else _dirichlet_by_class
    settings = {"clients": clients, "alpha": alpha, "equal": equal}
    return Split("dirichlet", settings, lambda table, rng: rule(table.labels, clients, alpha, rng))


def _dirichlet_by_class(labels: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(clients, alpha))
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        owner[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
    return owner


def _dirichlet_equal(labels: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    classes, labels = np.unique(labels, return_inverse=True)
    pools = [list(rng.permutation(np.flatnonzero(labels == c))) for c in range(len(classes))]
    mixtures = rng.dirichlet(np.full(len(classes), alpha), size=clients)
    owner = np.full(len(labels), UNUSED, dtype=np.int64)
    for client in np.tile(np.arange(clients), len(labels) // clients):
        left = np.array([len(pool) > 0 for pool in pools])
        weights = mixtures[client] * left
        weights = weights / weights.sum() if weights.sum() > 0 else left / left.sum()
        owner[pools[rng.choice(len(classes), p=weights)].pop()] = client
    return owner


def classes_per_client(clients: int, classes: int) -> Split:
    """Every client has rows of `classes` classes, dealt round-robin (PFLEGO's degrees of personalization).

    Two classes are high, half of them medium, all of them no personalization.

    >>> table = Table("rows", {"y": np.repeat([0, 1, 2, 3], 2)})
    >>> classes_per_client(clients=2, classes=2).assign(table, seed=0).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    _check_clients(clients)
    require(is_count(classes), "classes", "an int >= 1", classes)

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        labels = table.labels
        known = np.unique(labels)
        if classes > len(known):
            raise DataError(f"classes must be an int in [1, {len(known)}] (the classes of the data). Got {classes}.")
        order = rng.permutation(known)
        wanted = {c: order[(np.arange(classes) + c * classes) % len(known)] for c in range(clients)}
        owner = np.full(len(labels), UNUSED, dtype=np.int64)
        for label in known:
            owners = [c for c in range(clients) if label in wanted[c]]
            rows = rng.permutation(np.flatnonzero(labels == label))
            if owners:
                owner[rows] = np.resize(owners, len(rows))
        return owner

    return Split("classes_per_client", {"clients": clients, "classes": classes}, assign)


def shards(clients: int, per_client: int = 2) -> Split:
    """Rows sorted by label and cut into shards; each client gets `per_client` of them (McMahan et al., 2017).

    >>> table = Table("rows", {"y": np.repeat([0, 1, 2, 3], 2)})
    >>> shards(clients=2).assign(table, seed=0).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    _check_clients(clients)
    require(is_count(per_client), "per_client", "an int >= 1", per_client)

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        most = len(table) // clients
        if per_client > most:
            raise DataError(f"per_client must be an int in [1, {most}] (the rows for a client). Got {per_client}.")
        by_label = np.argsort(table.labels, kind="stable")
        dealt = rng.permutation(clients * per_client) % clients
        owner = np.empty(len(table), dtype=np.int64)
        for shard, rows in enumerate(np.array_split(by_label, clients * per_client)):
            owner[rows] = dealt[shard]
        return owner

    return Split("shards", {"clients": clients, "per_client": per_client}, assign)


def quantity_skew(clients: int, alpha: float) -> Split:
    """Client sizes drawn from Dirichlet(alpha); the labels of each client are a random sample.

    >>> table = Table("rows", {"y": np.repeat([0, 1, 2, 3], 2)})
    >>> quantity_skew(clients=2, alpha=0.5).assign(table, seed=0).tolist()
    [1, 0, 0, 1, 1, 1, 0, 1]
    """
    _check_clients(clients)
    require(is_number(alpha) and alpha > 0, "alpha", "a number > 0", alpha)

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        cuts = np.round(np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(table)).astype(np.int64)
        owner = np.searchsorted(cuts, np.arange(len(table)), side="right")
        return rng.permutation(owner)

    return Split("quantity_skew", {"clients": clients, "alpha": alpha}, assign)


def louvain(clients: int | None = None) -> Split:
    """The communities of a graph's nodes; `clients` bundles of about equal size if a number is given."""
    require(clients is None or is_count(clients), "clients", "an int >= 1", clients)

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        from fedtempo.data.communities import communities

        if table.edges is None:
            raise DataError(f"data set {table.name!r} is not a graph. Use dirichlet, iid or another split.")
        return communities(table.edges, len(table), clients, int(rng.integers(2**31)))

    return Split("louvain", {"clients": clients}, assign)


def by_owner(owner: np.ndarray) -> Split:
    """A division that you made: the client of every row; -1 leaves a row out.

    >>> table = Table("rows", {"x": np.zeros((4, 1)), "y": np.array([0, 1, 0, 1])})
    >>> table.split(by_owner(np.array([1, 0, 1, -1])), validation=0.0, test=0.0, seed=0).sizes("train").tolist()
    [1, 2]
    """
    owners = np.asarray(owner)
    if owners.ndim != 1 or not len(owners) or owners.dtype.kind not in "iu":
        raise DataError("owner must be a list of client numbers, one per row. Got something else.")
    lowest, highest = int(owners.min()), int(owners.max())
    if lowest < UNUSED or highest == UNUSED:
        rule = f"a list of client numbers from 0, or {UNUSED} for a row that nobody gets"
        raise DataError(f"owner must be {rule}. Got numbers from {lowest} to {highest}.")

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        if len(owners) != len(table):
            raise DataError(f"owner must have one entry per row, {len(table)}. Got {len(owners)}.")
        return owners.astype(np.int64)

    return Split("by_owner", {"clients": highest + 1}, assign)


def by_index(clients: str | Path | Mapping[str, Sequence[int]]) -> Split:
    """A division that somebody else made: the rows of each client by name, or a file of it (`.json` or `.npz`).

    The file holds `{client: [rows]}`, in npz an array for each client. Rows that no client has are left out.

    >>> table = Table("rows", {"x": np.zeros((4, 1)), "y": np.array([0, 1, 0, 1])})
    >>> data = table.split(by_index({"anna": [0, 2], "ben": [3]}), validation=0.0, test=0.0)
    >>> data.names, data.sizes("train").tolist()
    (('anna', 'ben'), [2, 1])
    """
    found = clients if isinstance(clients, Mapping) else read_index(Path(clients))
    require(bool(found), "clients", "rows of one or more clients", dict(found))
    rows = {str(name): np.asarray(numbers) for name, numbers in found.items()}
    for name, numbers in rows.items():
        integers = numbers.ndim == 1 and (not len(numbers) or (numbers.dtype.kind in "iu" and int(numbers.min()) >= 0))
        require(integers, f"the rows of client {name}", "a list of row numbers from 0", found[name])

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        owner = np.full(len(table), UNUSED, dtype=np.int64)
        for client, (name, numbers) in enumerate(rows.items()):
            mine = numbers.astype(np.int64)
            if len(mine) and int(mine.max()) >= len(table):
                raise DataError(f"client {name} must have rows in [0, {len(table) - 1}]. Got {int(mine.max())}.")
            taken = owner[mine] != UNUSED
            if taken.any() or len(np.unique(mine)) < len(mine):
                row = int(mine[taken][0]) if taken.any() else int(np.sort(mine)[:-1][np.diff(np.sort(mine)) == 0][0])
                raise DataError(f"a row must belong to one client, once. Got row {row} again, for client {name}.")
            owner[mine] = client
        return owner

    return Split("by_index", {"clients": len(rows)}, assign, names=tuple(rows))


def _check_clients(clients: int) -> None:
    require(is_count(clients), "clients", "an int >= 1", clients)


SPLITS: dict[str, Callable[..., Split]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "classes_per_client": classes_per_client,
    "shards": shards,
    "quantity_skew": quantity_skew,
    "natural": natural,
    "louvain": louvain,
    "by_index": by_index,
    "hsu_dirichlet": hsu_dirichlet,
    "niid_bench": niid_bench,
    "pfllib": pfllib,
    "extended_dirichlet": extended_dirichlet,
    "pachinko": pachinko,
}
