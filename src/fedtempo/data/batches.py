"""Which rows make up each step's batch: derived from (seed, round, client), for many clients at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedtempo.errors import is_count, require
from fedtempo.randomness import random_bits, scramble

MODES = ("epochs", "in_order", "replace")
_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Batching:
    """How batches are drawn: epochs with a short last batch, shuffled or in the order of the rows; or with replacement.

    `size=None` is the full batch: every step sees all rows, in order.
    """

    size: int | None = 32
    mode: str = "epochs"

    def __post_init__(self) -> None:
        require(
            self.size is None or is_count(self.size), "batch_size", "an int >= 1, or None for the full batch", self.size
        )
        require(self.mode in MODES, "batches", " or ".join(map(repr, MODES)), self.mode)

    def per_epoch(self, samples: int) -> int:
        """Batches in one pass over `samples` rows."""
        return 1 if self.size is None else -(-samples // self.size)

    def length(self, samples: int, step: int) -> int:
        """How many rows the batch of this step has."""
        if self.size is None:
            return samples
        if self.mode == "replace":
            return self.size
        place = step % self.per_epoch(samples)
        return min(self.size, samples - place * self.size)


class BatchRows:
    """The rows of every step for a group of clients, drawn one epoch at a time."""

    def __init__(self, batching: Batching, keys: np.ndarray, sizes: np.ndarray) -> None:
        self._batching = batching
        self._keys = keys
        self._sizes = sizes
        self._widest = int(sizes.max())
        self._orders: dict[int, np.ndarray] = {}

    def at(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers inside each client, shape (clients, width), and how many of them count.

        Entries beyond a client's count repeat its first row, so that they can be read and then ignored.
        """
        size = self._batching.size
        if size is None:
            rows = np.broadcast_to(np.arange(self._widest), (len(self._sizes), self._widest))
            return np.where(rows < self._sizes[:, None], rows, 0), self._sizes
        if self._batching.mode == "replace":
            bits = random_bits(self._keys, size, start=step * size)
            return (bits & _LARGEST) % self._sizes[:, None], np.full(len(self._sizes), size)
        return self._from_epochs(step, size)

    def of_first(self, step: int) -> np.ndarray:
        """The rows of the first client alone: row 0 of `at(step)`, without what only a group needs."""
        size, samples = self._batching.size, int(self._sizes[0])
        if size is None or self._batching.mode == "replace":
            rows, counts = self.at(step)
            first: np.ndarray = rows[0, : counts[0]]
            return first
        epoch, place = divmod(step, self._batching.per_epoch(samples))
        return self._order(epoch)[0, place * size : min((place + 1) * size, samples)]

    def _from_epochs(self, step: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        per_epoch = -(-self._sizes // size)
        epochs, places = np.divmod(step, per_epoch)
        counts = np.minimum(size, self._sizes - places * size)
        width, epoch = int(counts.max()), int(epochs[0])
        # Clients of one size are all at the same place of the same epoch: their batches are one slice.
        if (places == places[0]).all() and (counts == width).all() and (epochs == epoch).all():
            start = int(places[0]) * size
            return self._order(epoch)[:, start : start + width], counts
        columns = places[:, None] * size + np.arange(width)
        rows = np.empty(columns.shape, dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            rows[here] = np.take_along_axis(
                self._order(epoch)[here], np.minimum(columns[here], self._widest - 1), axis=1
            )
        inside = np.arange(width) < counts[:, None]
        return np.where(inside, rows, rows[:, :1]), counts

    def _order(self, epoch: int) -> np.ndarray:
        """A random order of each client's rows; the order of one client does not depend on the others."""
        if self._batching.mode == "in_order":
            return np.tile(np.arange(self._widest), (len(self._sizes), 1))
        if epoch not in self._orders:
            keys = scramble(self._keys + np.int64(epoch + 1))
            bits = random_bits(keys, self._widest)
            if len(self._sizes) > 1:
                # Places beyond a client's rows sort last, so that its own rows come in the order they have alone.
                bits = np.where(np.arange(self._widest) < self._sizes[:, None], bits, _LARGEST)
            # Orders of epochs that lie behind are dropped, so that memory does not grow with the steps. Clients of
            # different sizes may be in different epochs at one step; then an order may have to be drawn again.
            self._orders = {e: o for e, o in self._orders.items() if e >= epoch - 1}
            self._orders[epoch] = np.argsort(bits, axis=1, kind="stable")
        return self._orders[epoch]
