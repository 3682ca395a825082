"""Splits as their originators wrote them, with their parameters, so that a published partition can be had again.

`niid_bench` and `pfllib` draw from numpy's old generator in the order of the original programs: of the same labels in
the same order they give the same clients the same rows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from fedtempo.data.parts import UNUSED
from fedtempo.data.table import Split, Table
from fedtempo.errors import DataError, is_count, is_number, require

TRIES = 1000
"""Draws after which a division in which every client has enough rows is taken to be impossible."""


def hsu_dirichlet(clients: int, alpha: float) -> Split:
    """Hsu et al. (2019): each client draws a mixture of classes from Dirichlet(alpha p) and gets equally many rows.

    p are the shares of the classes in the data. Rows are drawn without replacement; a class that is used up leaves the
    mixture. `dirichlet(equal=True)` has Dirichlet(alpha) with the same alpha for every class: for C classes of equal
    size that is `hsu_dirichlet` with C alpha.
    """
    _check(clients, alpha)

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        classes, labels, counts = np.unique(table.labels, return_inverse=True, return_counts=True)
        pools = [rng.permutation(np.flatnonzero(labels == c)).tolist() for c in range(len(classes))]
        owner = np.full(len(labels), UNUSED, dtype=np.int64)
        for client in range(clients):
            mixture = rng.dirichlet(alpha * counts / len(labels))
            for _ in range(len(labels) // clients):
                owner[pools[_drawn(mixture, pools, rng)].pop()] = client
        return owner

    return Split("hsu_dirichlet", {"clients": clients, "alpha": alpha}, assign)


def _drawn(mixture: np.ndarray, pools: Sequence[Sequence[int]], rng: np.random.Generator) -> int:
    """A class by the mixture, among those that have rows left."""
    left = np.array([bool(pool) for pool in pools])
    weights = mixture * left
    weights = weights / weights.sum() if weights.sum() > 0 else left / left.sum()
    return int(rng.choice(len(pools), p=weights))


def niid_bench(partition: str, clients: int, beta: float = 0.5, init_seed: int = 0) -> Split:
    """NIID-Bench's partitions by their names (Li et al., 2022), with its generator: the rows of its own program.

    `noniid-labeldir`: each class is divided in proportions from Dirichlet(beta), in which a client that has its equal
    share already gets none; drawn again until every client has ten rows. `noniid-#labelC` (C from 1 to 9): C classes a
    client, each class in equal pieces. `iid-diff-quantity`: sizes from Dirichlet(beta). `homo`: equal random parts.
    `init_seed` is the program's; the seed of `table.split` draws only parts and new clients.
    """
    _check(clients, beta, "beta")
    labelled = partition.startswith("noniid-#label") and partition[13:].isdecimal() and 1 <= int(partition[13:]) <= 9
    known = labelled or partition in ("homo", "noniid-labeldir", "iid-diff-quantity")
    rule = "'homo', 'noniid-labeldir', 'iid-diff-quantity' or 'noniid-#label1' to '#label9'"
    require(known, "partition", rule, partition)
    require(is_count(init_seed, 0), "init_seed", "an int >= 0", init_seed)

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        old = np.random.RandomState(init_seed)
        if partition == "homo":
            return _owners(len(table), np.array_split(old.permutation(len(table)), clients))
        if partition == "iid-diff-quantity":
            return _owners(len(table), _by_quantity(len(table), clients, beta, old))
        if partition == "noniid-labeldir":
            return _owners(len(table), _capped_dirichlet(table.labels, clients, beta, 10, old))
        return _owners(len(table), _some_classes(table.labels, clients, int(partition[13:]), old, init_seed))

    settings = {"partition": partition, "clients": clients, "beta": beta, "init_seed": init_seed}
    return Split("niid_bench", settings, assign)


def pfllib(
    partition: str,
    clients: int,
    alpha: float = 0.1,
    classes: int = 2,
    balance: bool = False,
    least: int = 1,
    init_seed: int = 1,
) -> Split:
    """PFLlib's partitions `dir` and `pat`, with its generator: the rows of its own program.

    `dir` is NIID-Bench's rule with at least `least` rows a client in place of ten. `pat`: every client takes `classes`
    classes in the order of their numbers; pieces are equal with `balance`, else at random from a tenth of that on.
    PFLlib puts the official parts together and keeps 75 % of each client for training, which is
    `split(..., test=0.25, validation=0)`. To use a division that you have already, read its folder by
    `ft.data.from_pfllib`.
    """
    _check(clients, alpha)
    require(partition in ("dir", "pat"), "partition", "'dir' or 'pat'", partition)
    require(is_count(classes), "classes", "an int >= 1", classes)
    require(is_count(least), "least", "an int >= 1", least)
    require(is_count(init_seed, 0), "init_seed", "an int >= 0", init_seed)

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        old = np.random.RandomState(init_seed)
        if partition == "dir":
            return _owners(len(table), _capped_dirichlet(table.labels, clients, alpha, least, old))
        return _owners(len(table), _pathological(table.labels, clients, classes, balance, least, old))

    settings = {"partition": partition, "clients": clients, "alpha": alpha, "classes": classes, "balance": balance}
    return Split("pfllib", {**settings, "least": least, "init_seed": init_seed}, assign)


def extended_dirichlet(clients: int, classes: int, alpha: float, least: int = 10) -> Split:
    """Li and Lyu (2023): each client gets `classes` classes, each divided among its clients by Dirichlet(alpha).

    Every class has a client, and every client `least` rows.
    """
    _check(clients, alpha)
    require(is_count(classes), "classes", "an int >= 1", classes)
    require(is_count(least), "least", "an int >= 1", least)

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        known, labels = np.unique(table.labels, return_inverse=True)
        enough = f"an int in [{-(-len(known) // clients)}, {len(known)}], so that every class has a client"
        require(classes * clients >= len(known) >= classes, "classes", enough, classes)
        for _ in range(TRIES):
            chosen = np.stack([rng.permutation(len(known))[:classes] for _ in range(clients)])
            if len(np.unique(chosen)) < len(known):
                continue
            pieces: list[list[int]] = [[] for _ in range(clients)]
            for c in range(len(known)):
                rows = rng.permutation(np.flatnonzero(labels == c))
                owners = np.flatnonzero((chosen == c).any(1))
                cuts = (np.cumsum(rng.dirichlet(np.full(len(owners), alpha)))[:-1] * len(rows)).astype(int)
                for client, piece in zip(owners.tolist(), np.split(rows, cuts), strict=True):
                    pieces[client] += piece.tolist()
            if min(map(len, pieces)) >= least:
                return _owners(len(labels), pieces)
        raise _too_few(least)

    settings = {"clients": clients, "classes": classes, "alpha": alpha, "least": least}
    return Split("extended_dirichlet", settings, assign)


def pachinko(clients: int, groups: Sequence[int], alpha: float = 0.1, beta: float = 10.0, rows: int = 100) -> Split:
    """Reddi et al. (2021), for CIFAR-100: each client draws a mixture of groups, and in each group one of classes.

    `groups` has each class's group, such as the 20 coarse labels of CIFAR-100's 100 classes. Mixtures are drawn from
    Dirichlet(alpha) and Dirichlet(beta), each client has `rows` rows, and classes and groups that are used up leave
    the mixtures.
    """
    _check(clients, alpha)
    require(is_number(beta) and beta > 0, "beta", "a number > 0", beta)
    require(is_count(rows), "rows", "an int >= 1", rows)
    group_of = np.asarray(groups)
    integers = group_of.ndim == 1 and len(group_of) > 0 and group_of.dtype.kind in "iu"
    require(integers, "groups", "the group of each class, as a list of ints", groups)

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        labels = table.labels
        known = int(labels.max()) + 1
        require(known <= len(group_of), "groups", f"one for each class, {known}", len(groups))
        if clients * rows > len(labels):
            raise DataError(f"clients * rows must be at most {len(labels)}, the rows. Got {clients} * {rows}.")
        members = [np.flatnonzero(group_of == group).tolist() for group in np.unique(group_of)]
        pools = [rng.permutation(np.flatnonzero(labels == c)).tolist() for c in range(len(group_of))]
        owner = np.full(len(labels), UNUSED, dtype=np.int64)
        for client in range(clients):
            coarse = rng.dirichlet(np.full(len(members), alpha))
            fine = [rng.dirichlet(np.full(len(classes), beta)) for classes in members]
            for _ in range(rows):
                group = _drawn(coarse, [[c for c in classes if pools[c]] for classes in members], rng)
                place = _drawn(fine[group], [pools[c] for c in members[group]], rng)
                owner[pools[members[group][place]].pop()] = client
        return owner

    settings = {"clients": clients, "groups": group_of.tolist(), "alpha": alpha, "beta": beta, "rows": rows}
    return Split("pachinko", settings, assign)


def _check(clients: int, alpha: float, name: str = "alpha") -> None:
    require(is_count(clients), "clients", "an int >= 1", clients)
    require(is_number(alpha) and alpha > 0, name, "a number > 0", alpha)


def _owners(rows: int, pieces: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
    owner = np.full(rows, UNUSED, dtype=np.int64)
    for client, piece in enumerate(pieces):
        owner[np.asarray(piece, dtype=np.int64)] = client
    return owner


def _too_few(least: int) -> DataError:
    return DataError(
        f"no division in {TRIES} draws gave all clients {least} rows. Take fewer clients or a larger alpha."
    )


def _capped_dirichlet(
    labels: np.ndarray, clients: int, alpha: float, least: int, old: np.random.RandomState
) -> list[list[int]]:
    """Each class in proportions from Dirichlet(alpha); who has an equal share of all rows already gets none."""
    for _ in range(TRIES):
        pieces: list[list[int]] = [[] for _ in range(clients)]
        for label in range(int(labels.max()) + 1):
            rows = np.flatnonzero(labels == label)
            old.shuffle(rows)
            shares = old.dirichlet(np.repeat(alpha, clients))
            open_ = np.array([len(piece) < len(labels) / clients for piece in pieces])
            shares = shares * open_
            cuts = (np.cumsum(shares / shares.sum()) * len(rows)).astype(int)[:-1]
            for client, more in enumerate(np.split(rows, cuts)):
                pieces[client] += more.tolist()
        if min(map(len, pieces)) >= least:
            return pieces
    raise _too_few(least)


def _by_quantity(rows: int, clients: int, beta: float, old: np.random.RandomState) -> list[np.ndarray]:
    order = old.permutation(rows)
    for _ in range(TRIES):
        shares = old.dirichlet(np.repeat(beta, clients))
        shares = shares / shares.sum()
        if (shares * rows).min() >= 10:
            return np.split(order, (np.cumsum(shares) * rows).astype(int)[:-1])
    raise _too_few(10)


def _some_classes(
    labels: np.ndarray, clients: int, number: int, old: np.random.RandomState, seed: int
) -> list[list[int]]:
    """Client i has class i modulo the number of classes, and others by Python's own generator."""
    classes, draws = int(labels.max()) + 1, random.Random(seed)  # noqa: S311 - the originators' draws, no secrets
    require(number <= classes, "partition", f"'noniid-#label1' to '#label{classes}' for these labels", number)
    wanted: list[list[int]] = []
    for client in range(clients):
        mine = [client % classes]
        while len(mine) < number:
            other = draws.randint(0, classes - 1)
            mine += [] if other in mine else [other]
        wanted.append(mine)
    pieces: list[list[int]] = [[] for _ in range(clients)]
    for label in range(classes):
        rows = np.flatnonzero(labels == label)
        old.shuffle(rows)
        owners = [client for client in range(clients) if label in wanted[client]]
        for client, more in zip(owners, np.array_split(rows, len(owners)) if owners else [], strict=True):
            pieces[client] += more.tolist()
    return pieces


def _pathological(
    labels: np.ndarray, clients: int, classes: int, balance: bool, least: int, old: np.random.RandomState
) -> list[list[int]]:
    """Classes in order; each goes to the first clients that still want one, in pieces of the rows' order."""
    number = int(labels.max()) + 1
    wants, pieces = [classes] * clients, [[] for _ in range(clients)]  # type: list[int], list[list[int]]
    for label in range(number):
        rows = np.flatnonzero(labels == label)
        takers = [client for client in range(clients) if wants[client]]
        takers = takers[: int(np.ceil(clients / number * classes))]
        if not takers:
            break
        each = len(rows) / len(takers)
        if balance:
            sizes = [int(each)] * (len(takers) - 1)
        else:
            low = int(max(each / 10, least / number))
            require(low < int(each), "clients", "few enough for several rows of each class a client", clients)
            sizes = old.randint(low, int(each), len(takers) - 1).tolist()
        for client, more in zip(takers, np.split(rows, np.cumsum(sizes).astype(int)), strict=True):
            pieces[client] += more.tolist()
            wants[client] -= 1
    return pieces
