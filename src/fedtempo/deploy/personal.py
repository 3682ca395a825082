"""What a node's clients keep for themselves, in the node's own database.

The server names the state a client is to start from by its hash. A state is kept until two later ones have been made
from it, so whatever the server had committed when it stopped, or an answer of ours that it never got, the state that it
names next is still here. One that is not here is an error, never a fresh start.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedtempo.errors import OutputError, StoreError
from fedtempo.params import Params
from fedtempo.training.state import digest_of, tensors_from_bytes, tensors_to_bytes

DATABASE = "personal.sqlite"
WAIT_SECONDS = 60.0
_TABLE = """CREATE TABLE IF NOT EXISTS states (run TEXT NOT NULL, client INTEGER NOT NULL, digest BLOB NOT NULL,
    before BLOB NOT NULL, tensors BLOB NOT NULL, PRIMARY KEY (run, client, digest)) STRICT"""
_ONE = "run = ? AND client = ? AND digest = ?"


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
        tensors = tensors_from_bytes(row[0])
        if digest_of(tensors) != digest:
            raise StoreError("its personal state is damaged")
        return tensors

    def put(self, run: str, client: int, before: bytes, tensors: Params) -> bytes:
        """Keep a state made from the one whose hash is `before`, and forget those that no server can ask for."""
        digest = digest_of(tensors)
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?)",
                (run, client, digest, before, tensors_to_bytes(tensors)),
            )
            row = connection.execute(f"SELECT before FROM states WHERE {_ONE}", (run, client, before)).fetchone()
            kept = (digest, before, row[0] if row else b"")
            connection.execute(
                "DELETE FROM states WHERE run = ? AND client = ? AND digest NOT IN (?, ?, ?)", (run, client, *kept)
            )
            connection.execute("COMMIT")
        return digest

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute(_TABLE)
                yield connection
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self._path.name} cannot be used: {error}") from None
