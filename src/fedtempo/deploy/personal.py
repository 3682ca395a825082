"""What a node's clients keep for themselves, in the node's own database.

The server names the state a client is to start from by its hash. A state is kept until two later ones have been made
from it, so whatever the server had committed when it stopped, or an answer of ours that it never got, the state that it
names next is still here. The state of the round that validation has selected, which the server names too, is kept as
long as that round is the selected one. A state that is not here is an error, never a fresh start.

When a run is over, two states of a client are left, the selected and the last, with the shared models that belong to
them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from fedtempo.deploy.wire import NOTHING_KEPT
from fedtempo.errors import OutputError, StoreError
from fedtempo.params import Params
from fedtempo.training.saved import Which
from fedtempo.training.state import digest_of, tensors_from_bytes, tensors_to_bytes

DATABASE = "personal.sqlite"
WAIT_SECONDS = 60.0
_TABLES = (
    """CREATE TABLE IF NOT EXISTS states (run TEXT NOT NULL, client INTEGER NOT NULL, digest BLOB NOT NULL,
    before BLOB NOT NULL, tensors BLOB NOT NULL, PRIMARY KEY (run, client, digest)) STRICT""",
    """CREATE TABLE IF NOT EXISTS finished (number INTEGER PRIMARY KEY, run TEXT NOT NULL, experiment TEXT NOT NULL,
    which TEXT NOT NULL, round INTEGER NOT NULL, digest BLOB NOT NULL, tensors BLOB NOT NULL,
    UNIQUE (run, which)) STRICT""",
    """CREATE TABLE IF NOT EXISTS settled (run TEXT NOT NULL, client INTEGER NOT NULL, selected BLOB NOT NULL,
    last BLOB NOT NULL, PRIMARY KEY (run, client)) STRICT""",
)
_ONE = "run = ? AND client = ? AND digest = ?"


class FinishedModel(NamedTuple):
    """The shared model of a finished run, after its selected or its last round."""

    run: str
    round: int
    shared: Params


class PersonalStore:
    """Personal tensors by run, client and hash. Several processes may use one folder, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / DATABASE
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._path.touch(mode=0o600)
        except OSError as error:
            raise OutputError(f"state must be a folder that can be written. Got {folder}: {error.strerror}.") from None
        if self._path.stat().st_mode & 0o077:
            raise OutputError(f"{self._path} must be readable by its owner only (chmod 600).")

    def get(self, run: str, client: int, digest: bytes) -> Params:
        """The state of this hash; `StoreError` if it is not here or damaged."""
        with self._open() as connection:
            row = connection.execute(f"SELECT tensors FROM states WHERE {_ONE}", (run, client, digest)).fetchone()
        if row is None:
            raise StoreError("its personal state is not on this node")
        return _checked(row[0], digest, "its personal state")

    def put(self, run: str, client: int, before: bytes, tensors: Params, selected: bytes = NOTHING_KEPT) -> bytes:
        """Keep a state made from the one whose hash is `before`, and forget those that no server can ask for."""
        digest = digest_of(tensors)
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?)",
                (run, client, digest, before, tensors_to_bytes(tensors)),
            )
            row = connection.execute(f"SELECT before FROM states WHERE {_ONE}", (run, client, before)).fetchone()
            kept = (digest, before, row[0] if row else b"", selected)
            connection.execute(
                "DELETE FROM states WHERE run = ? AND client = ? AND digest NOT IN (?, ?, ?, ?)", (run, client, *kept)
            )
            connection.execute("COMMIT")
        return digest

    def finish(self, run: str, experiment: str, which: Which, round_number: int, shared: Params) -> None:
        """Keep the shared model of a run that is over. The latest run of an experiment is the one handed out."""
        row = (run, experiment, which, round_number, digest_of(shared), tensors_to_bytes(shared))
        with self._open() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO finished (run, experiment, which, round, digest, tensors) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                row,
            )

    def settle(self, run: str, client: int, selected: bytes, last: bytes) -> None:
        """The run is over: keep these two states of the client, and no other. One that is not here is an error."""
        for digest in {selected, last} - {NOTHING_KEPT}:
            self.get(run, client, digest)
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR REPLACE INTO settled VALUES (?, ?, ?, ?)", (run, client, selected, last))
            connection.execute(
                "DELETE FROM states WHERE run = ? AND client = ? AND digest NOT IN (?, ?)",
                (run, client, selected, last),
            )
            connection.execute("COMMIT")

    def finished(self, experiment: str, which: Which) -> FinishedModel:
        """The shared model of the latest finished run of an experiment."""
        query = "SELECT run, round, digest, tensors FROM finished WHERE experiment = ? AND which = ? ORDER BY number"
        with self._open() as connection:
            rows = connection.execute(f"{query} DESC LIMIT 1", (experiment, which)).fetchall()
        if not rows:
            raise StoreError(f"{self._path} must hold a finished run of this experiment. It holds none.")
        run, round_number, digest, tensors = rows[0]
        return FinishedModel(run, round_number, _checked(tensors, digest, f"the {which} model"))

    def personal(self, run: str, client: int, which: Which) -> Params | None:
        """A client's tensors in a finished run; None if it had only those that everybody starts with."""
        with self._open() as connection:
            query = "SELECT selected, last FROM settled WHERE run = ? AND client = ?"
            row = connection.execute(query, (run, client)).fetchone()
        digest = NOTHING_KEPT if row is None else row[("selected", "last").index(which)]
        return None if digest == NOTHING_KEPT else self.get(run, client, digest)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous=FULL")
                for table in _TABLES:
                    connection.execute(table)
                yield connection
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self._path.name} cannot be used: {error}") from None


def _checked(data: bytes, digest: bytes, what: str) -> Params:
    tensors = tensors_from_bytes(data)
    if digest_of(tensors) != digest:
        raise StoreError(f"{what} is damaged")
    return tensors
