"""Which rows lie where: parts inside clients, clients held out, rows sorted by client and part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedtempo.data.parts import TEST, TRAIN, UNUSED, VALIDATION
from fedtempo.errors import DataError, is_int, is_number, require
from fedtempo.randomness import generator


def choose_held_out(clients: int, new_clients: float | int, seed: int) -> np.ndarray:
    """The clients that training never sees: a fraction of all, or a number."""
    require(
        is_number(new_clients) and 0 <= new_clients < clients,
        "new_clients",
        f"a fraction or int in [0, {clients})",
        new_clients,
    )
    count = int(new_clients) if is_int(new_clients) else round(new_clients * clients)
    require(count < clients, "new_clients", "small enough to leave a training client", new_clients)
    return np.sort(generator(seed, "new clients").permutation(clients)[:count]).astype(np.int64)


def listed(clients: int, new_clients: Sequence[int]) -> np.ndarray:
    """The clients with these numbers."""
    known = all(is_int(client) and 0 <= client < clients for client in new_clients)
    few = len(set(new_clients)) == len(new_clients) < clients
    require(known and few, "new_clients", f"different clients in [0, {clients}), and not all of them", new_clients)
    return np.sort(np.asarray(new_clients, dtype=np.int64))


def without_training_rows(owner: np.ndarray, part: np.ndarray, clients: int) -> np.ndarray:
    """The clients that have rows, but none in the official training part."""
    trained = np.unique(owner[(part == TRAIN) & (owner != UNUSED)])
    return np.setdiff1d(np.unique(owner[owner != UNUSED]), trained).astype(np.int64)


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


def completed_parts(
    owner: np.ndarray, part: np.ndarray, clients: int, validation: float | None, test: float | None, seed: int
) -> np.ndarray:
    """Given parts, with a part that is missing drawn from each client's training rows; all other rows stay."""
    for name, share, number in (("validation", validation, VALIDATION), ("test", test, TEST)):
        rows = int((part == number).sum())
        require(share is None or not rows, name, f"left out: the data has {name} rows of its own ({rows})", share)
    training = np.where(part == TRAIN, owner, UNUSED)
    drawn = drawn_parts(training, clients, validation or 0.0, test or 0.0, seed)
    return np.where(part == TRAIN, drawn, part).astype(np.int8)


def repaired(owner: np.ndarray, part: np.ndarray, clients: int, minimum: int) -> tuple[np.ndarray, np.ndarray]:
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
    order = np.lexsort((part, owner))  # by client first: the last key counts most
    order = order[owner[order] != UNUSED]
    slots = owner[order] * 3 + part[order]
    ends = np.cumsum(np.bincount(slots, minlength=clients * 3)).reshape(clients, 3)
    starts = np.concatenate([[0], ends[:-1, 2]])
    bounds = np.concatenate([starts[:, None], ends], axis=1).astype(np.int64)
    sorted_already = len(order) == len(owner) and bool((np.diff(order) == 1).all())
    return bounds, None if sorted_already else order
