"""The devices of one run: traits of its clients, and how long and how much energy a client's work takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fedtempo.devices.fleet import Devices
from fedtempo.devices.traits import Traits

PIECE = 1 << 16
"""Clients whose traits are worked out at a time."""


class Work(NamedTuple):
    """A client's share of a round in three parts, one entry per client: seconds and joules of each."""

    seconds: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Download, local steps, upload."""
    joules: tuple[np.ndarray, np.ndarray, np.ndarray]

    def arrivals(self) -> np.ndarray:
        """Seconds after which each upload is at the server."""
        download, steps, upload = self.seconds
        return np.asarray(download + steps + upload)

    def spent(self, until: np.ndarray) -> np.ndarray:
        """Joules used by each client if it stops after so many seconds."""
        total, start = np.zeros(len(until)), np.zeros(len(until))
        for seconds, joules in zip(self.seconds, self.joules, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                done = np.where(seconds > 0, (until - start) / seconds, until >= start)
            total = total + joules * np.clip(done, 0.0, 1.0)
            start = start + seconds
        return total


@dataclass(frozen=True)
class RunningDevices:
    """Devices bound to a run: its seed, the bytes that travel, and the operations of a row."""

    devices: Devices
    seed: int
    bytes_down: int
    bytes_up: int
    row_flops: float = 0.0
    """Operations that one row takes in the most expensive stage of a client's round."""
    known: np.ndarray | None = field(default=None, compare=False, repr=False)
    """The traits of few clients, drawn once: a row for each trait, a column for each client number."""

    def traits(self, clients: np.ndarray) -> Traits:
        """What the devices of these clients can do."""
        if self.known is not None and len(clients) and int(clients.max()) < self.known.shape[1]:
            found = self.known[:, clients]
            if not np.isnan(found[0]).any():
                return Traits(*found)
        return self.devices.traits(self.seed, clients)

    def checked(self, clients: np.ndarray) -> RunningDevices:
        """The devices with the traits of all clients where they are few, so that rounds need not draw them again.

        A user's file or function is asked for every client, so that what it lacks is known before training.
        """
        few = len(clients) and int(clients.max()) < PIECE
        if few:
            known = np.full((len(Traits._fields), int(clients.max()) + 1), np.nan)
            known[:, clients] = self.devices.traits(self.seed, clients)
            return replace(self, known=known)
        for piece in _pieces(clients if self.devices.is_own else clients[:1]):
            self.traits(piece)
        return self

    def seconds_per_step(self, traits: Traits, rows: np.ndarray) -> np.ndarray:
        """Seconds of one step on a batch of so many rows, at the most."""
        return np.asarray(traits.seconds_per_step + self.row_flops * rows / traits.flops_per_second)

    def transfer(self, traits: Traits) -> np.ndarray:
        """Seconds of the download and the upload together."""
        return np.asarray(2 * traits.latency + self.bytes_down / traits.down + self.bytes_up / traits.up)

    def work(self, traits: Traits, steps: np.ndarray, flops: np.ndarray, first_bytes: np.ndarray) -> Work:
        """What a round's work takes; `first_bytes` are those that go down only once, with a client's first round."""
        down = self.bytes_down + first_bytes
        up = np.full(len(down), float(self.bytes_up))
        seconds = (
            traits.latency + down / traits.down,
            steps * traits.seconds_per_step + flops / traits.flops_per_second,
            traits.latency + up / traits.up,
        )
        joules = (traits.joules_per_byte * down, traits.joules_per_step * steps, traits.joules_per_byte * up)
        return Work(seconds, joules)

    def available(self, clients: np.ndarray, time: float) -> np.ndarray:
        """Which clients may be asked at this time of the clock."""
        return np.asarray(self.waits(clients, time) <= 0)

    def waits(self, clients: np.ndarray, time: float) -> np.ndarray:
        """Seconds until each client may be asked; 0 for those that may be now."""
        return np.concatenate([self._waits(piece, time) for piece in _pieces(clients)] or [np.empty(0)])

    def _waits(self, clients: np.ndarray, time: float) -> np.ndarray:
        joined = self.devices.availability.joined_at(self.seed, clients) if self.devices.availability.joins else 0.0
        start = np.maximum(joined, time) + np.zeros(len(clients))
        return np.asarray(start - time + self.traits(clients).until_opening(start))

    def leaves(self, clients: np.ndarray, time: float, *path: int) -> np.ndarray:
        """Seconds after which each client leaves the round that it begins now: infinite where it stays."""
        if not self.devices.may_leave:
            return np.full(len(clients), np.inf)
        stays = self.devices.availability.stays_for(self.seed, clients, *path)
        return np.asarray(np.minimum(stays, self.traits(clients).until_closing(time)))


def _pieces(clients: np.ndarray) -> Iterator[np.ndarray]:
    """Some clients after the other: the traits of a million at once would take more memory than all the rest."""
    return (clients[start : start + PIECE] for start in range(0, len(clients), PIECE))
