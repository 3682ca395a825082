"""From a table and a split to FederatedData: parts inside clients, held-out clients, repairs."""

from __future__ import annotations

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.data.splits import UNUSED, Split, natural
from fedtempo.data.table import TEST, TRAIN, VALIDATION, Table
from fedtempo.errors import DataError, is_count, is_number, require
from fedtempo.randomness import generator


def divide(
    table: Table,
    split: Split | None,
    new_clients: float | int,
    validation: float | None,
    test: float | None,
    seed: int,
    min_samples: int | None,
    relabel: bool,
) -> FederatedData:
    """Divide a table's rows among clients; see `Table.split`."""
    split = split or natural()
    owner = split.assign(table, seed)
    clients = int(owner.max()) + 1 if split.settings.get("clients") is None else int(split.settings["clients"])
    clients = max(clients, int(owner.max()) + 1)
    fixed = table.parts is not None and validation is None and test is None
    part = np.asarray(table.parts) if fixed else drawn_parts(owner, clients, validation, test, seed)
    if min_samples is not None:
        require(is_count(min_samples), "min_samples", "an int >= 1", min_samples)
        owner, part = _repaired(owner, part, clients, min_samples)
    bounds, order = layout(owner, part, clients)
    held_out = choose_held_out(clients, new_clients, seed)
    names = _names(table, owner, clients) if split.name == "natural" else None
    description = f"{table.name} by {split!r}"
    data = FederatedData(table.columns, bounds, order, held_out, table.normalise, names, description=description)
    data = relabelled(data) if relabel else data
    data = table.after(data) if table.after else data
    data.check()
    return data


def choose_held_out(clients: int, new_clients: float | int, seed: int) -> np.ndarray:
    """The clients that training never sees: a fraction of all, or a number."""
    require(
        is_number(new_clients) and 0 <= new_clients < clients,
        "new_clients",
        f"a fraction or int in [0, {clients})",
        new_clients,
    )
    count = new_clients if isinstance(new_clients, int) else round(new_clients * clients)
    require(count < clients, "new_clients", "small enough to leave a training client", new_clients)
    return np.sort(generator(seed, "new clients").permutation(clients)[:count]).astype(np.int64)


def drawn_parts(owner: np.ndarray, clients: int, validation: float | None, test: float | None, seed: int) -> np.ndarray:
    """Train, validation or test for each row, drawn inside each client; training keeps at least one row."""
    validation, test = 0.2 if validation is None else validation, 0.2 if test is None else test
    for name, share in (("validation", validation), ("test", test)):
        require(is_number(share) and 0 <= share < 1, name, "a fraction in [0, 1)", share)
    require(validation + test < 1, "validation + test", "below 1", validation + test)
    rank = generator(seed, "parts").permutation(len(owner))
    by_client = np.lexsort((rank, owner))
    by_client = by_client[owner[by_client] != UNUSED]
    sizes = np.bincount(owner[by_client], minlength=clients)
    place = np.arange(len(by_client)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    size = np.repeat(sizes, sizes)
    tests = np.minimum(np.round(size * test), size - 1)
    validations = np.minimum(np.round(size * validation), size - 1 - tests)
    part = np.zeros(len(owner), dtype=np.int8)
    part[by_client] = np.where(place < tests, TEST, np.where(place < tests + validations, VALIDATION, TRAIN))
    return part


def _repaired(owner: np.ndarray, part: np.ndarray, clients: int, minimum: int) -> tuple[np.ndarray, np.ndarray]:
    """Move training rows from the largest clients until everybody has at least `minimum`."""
    owner = owner.copy()
    training = (part == TRAIN) & (owner != UNUSED)
    if training.sum() < minimum * clients:
        raise DataError(
            f"min_samples must be at most {int(training.sum()) // clients} for {clients} clients. Got {minimum}."
        )
    sizes = np.bincount(owner[training], minlength=clients)
    for client in np.flatnonzero(sizes < minimum):
        while sizes[client] < minimum:
            largest = int(np.argmax(sizes))
            row = np.flatnonzero(training & (owner == largest))[-1]
            owner[row] = client
            sizes[largest] -= 1
            sizes[client] += 1
    return owner, part


def layout(owner: np.ndarray, part: np.ndarray, clients: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Sort rows by client and part; `order` is None where they already are."""
    order = np.lexsort((part, owner))
    order = order[owner[order] != UNUSED]
    slots = owner[order] * 3 + part[order]
    ends = np.cumsum(np.bincount(slots, minlength=clients * 3)).reshape(clients, 3)
    starts = np.concatenate([[0], ends[:-1, 2]])
    bounds = np.concatenate([starts[:, None], ends], axis=1).astype(np.int64)
    sorted_already = len(order) == len(owner) and bool((np.diff(order) == 1).all())
    return bounds, None if sorted_already else order


def _names(table: Table, owner: np.ndarray, clients: int) -> list[str]:
    assert table.keys is not None
    used = owner != UNUSED
    _, first = np.unique(owner[used], return_index=True)
    keys = table.keys[used][first]
    return [str(key) if table.key_names is None else table.key_names[int(key)] for key in keys]


def relabelled(data: FederatedData) -> FederatedData:
    """Number each client's classes from 0, by the sorted classes of its training rows."""
    labels = np.asarray(data.columns["y"]).copy()
    outputs = np.zeros(len(data), dtype=np.int64)
    for client in range(len(data)):
        classes = np.unique(labels[data.positions(client, "train")])
        outputs[client] = len(classes)
        for part in ("train", "validation", "test"):
            rows = data.positions(client, part)
            places = np.searchsorted(classes, labels[rows])
            known = places < len(classes)
            known[known] = classes[places[known]] == labels[rows][known]
            if not known.all():
                raise DataError(
                    f"client {client} has a {part} row of a class that it never trains on; relabel needs all."
                )
            labels[rows] = places
    from dataclasses import replace

    return replace(data, columns={**data.columns, "y": labels}, outputs=outputs)
