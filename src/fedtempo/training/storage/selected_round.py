"""The state of the round that validation selected, kept beside the newest one.

The shared state is kept as it was. Of the clients only those are kept that have changed since: a client's old state is
put aside when a new one replaces it, until the next selection. So the cost does not grow with the number of clients,
and every client's state as of the selected round can still be read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fedtempo.errors import StoreError
from fedtempo.params import Params
from fedtempo.training.state import State, state_from_bytes, state_to_bytes, tensors_from_bytes, tensors_to_bytes
from fedtempo.training.storage.seals import MALFORMED, Seal

TABLES = {
    "selected": (
        "CREATE TABLE selected (round INTEGER PRIMARY KEY, tensors BLOB NOT NULL, numbers TEXT NOT NULL, "
        "sha256 TEXT NOT NULL) STRICT"
    ),
    "put_aside": (
        "CREATE TABLE put_aside (selection INTEGER NOT NULL, client INTEGER NOT NULL, since INTEGER NOT NULL, "
        "tensors BLOB, sha256 TEXT NOT NULL, PRIMARY KEY (selection, client)) STRICT"
    ),
}
_ASIDE = "SELECT tensors, sha256 FROM put_aside WHERE selection = ? AND client = ?"


class Selected(NamedTuple):
    """The selected round and the state after it."""

    round: int
    state: State


class Changes(NamedTuple):
    """What happened to the selection in rounds that are not written yet."""

    selected: Selected | None = None
    """The round that is selected now."""
    is_new: bool = False
    """Whether it was selected in these rounds."""
    aside: Mapping[int, Params | None] = {}
    """Clients that have changed since, with what they had; None stands for what is on disk."""

    def after(
        self, round_number: int, state: State, selects: bool, waiting: Mapping[int, Params], new: Iterable[int]
    ) -> Changes:
        """The changes after one more round, in which the clients of `new` got another state."""
        if selects:
            return Changes(Selected(round_number, state), True)
        if self.selected is None:
            return self
        aside = {client: waiting.get(client) for client in new if client not in self.aside}
        return self._replace(aside={**self.aside, **aside})


class SelectionTables:
    """The part of a run's database that holds the selected round."""

    def __init__(self, connection: sqlite3.Connection, seal: Seal) -> None:
        self._connection, self._seal = connection, seal
        self._committed: int | None = None
        self.sum = 0
        """Over the hashes of the states put aside; part of the manifest."""

    def write(self, changes: Changes, round_number: int) -> int:
        """Write what changed, before the clients' new states are written; returns the new sum."""
        selected, total = changes.selected, self.sum
        if selected is None:
            return total
        if changes.is_new:
            row = (selected.round, *state_to_bytes(selected.state))
            digest = self._seal.hash("selected", *row)
            self._connection.execute("INSERT OR REPLACE INTO selected VALUES (?, ?, ?, ?)", (*row, digest))
            total = 0
        for client, tensors in changes.aside.items():
            if self._connection.execute(_ASIDE, (selected.round, client)).fetchone() is None:
                data = self._on_disk(client) if tensors is None else tensors_to_bytes(tensors)
                digest = self._hash(selected.round, client, data)
                row_aside = (selected.round, client, round_number, data, digest)
                self._connection.execute("INSERT INTO put_aside VALUES (?, ?, ?, ?, ?)", row_aside)
                total += self._token(client, digest)
        # The selection before this one stays for one commit, for a run that has to go back by one.
        kept = (selected.round, selected.round if self._committed is None else self._committed)
        self._connection.execute("DELETE FROM selected WHERE round NOT IN (?, ?)", kept)
        self._connection.execute("DELETE FROM put_aside WHERE selection NOT IN (?, ?)", kept)
        return total

    def committed(self, changes: Changes, total: int) -> None:
        """Note that the transaction was committed."""
        self._committed, self.sum = (changes.selected.round if changes.selected else None), total

    def go_back(self, round_number: int) -> None:
        """Forget what was put aside after this round."""
        self._connection.execute("DELETE FROM put_aside WHERE since > ?", (round_number,))

    def load(self, round_number: int | None, template: State) -> Selected | None:
        """The state of the selected round, or None if none was selected; damage is an error."""
        self._committed, self.sum = round_number, 0
        if round_number is None:
            return None
        query = "SELECT tensors, numbers, sha256 FROM selected WHERE round = ?"
        row = self._connection.execute(query, (round_number,)).fetchone()
        if row is None or self._seal.hash("selected", round_number, *row[:2]) != row[2]:
            raise StoreError(f"the stored state of the selected round {round_number} is damaged")
        rows = self._connection.execute("SELECT client, sha256 FROM put_aside WHERE selection = ?", (round_number,))
        self.sum = sum(self._token(*pair) for pair in rows)
        try:
            return Selected(round_number, state_from_bytes(row[0], row[1], template))
        except MALFORMED as error:
            message = f"the stored state of the selected round {round_number} cannot be read ({type(error).__name__})"
            raise StoreError(message) from None

    def get(self, connection: sqlite3.Connection, selection: int, client: int) -> tuple[bool, Params | None]:
        """Whether a client's state was put aside, and what it was."""
        row = connection.execute(_ASIDE, (selection, client)).fetchone()
        if row is None:
            return False, None
        if self._hash(selection, client, row[0]) != row[1]:
            raise StoreError(f"the stored state of client {client} in the selected round {selection} is damaged.")
        return True, None if row[0] is None else tensors_from_bytes(row[0])

    def _on_disk(self, client: int) -> bytes | None:
        row = self._connection.execute("SELECT tensors FROM clients WHERE client = ?", (client,)).fetchone()
        return None if row is None else row[0]

    def _hash(self, selection: int, client: int, data: bytes | None) -> str:
        return self._seal.hash("put aside", selection, client, data)

    def _token(self, client: int, digest: str) -> int:
        return int(self._seal.hash("row put aside", client, digest), 16)
