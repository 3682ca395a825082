"""Reading a run folder: what decided the run's numbers, and its rounds so far. Every record's hash is checked."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedtempo.errors import OutputError, StoreError
from fedtempo.training.round_report import RoundReport, from_json

DATABASE = "run.sqlite"


class RunReader:
    """Follows a run folder that may still be trained: `refresh` adds the rounds committed since the last call.

    Nothing is written, and nothing is locked for longer than one query takes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / DATABASE).is_file():
            raise OutputError(f"a run folder must hold {DATABASE}. Got {folder}, which does not.")
        self.history: list[RoundReport] = []
        with self._connected() as connection:
            self.identity = stored_identity(connection)

    def refresh(self) -> list[RoundReport]:
        """All rounds that are committed by now. A run that went back a round is read from the start."""
        with self._connected() as connection:
            latest = int(connection.execute("SELECT COALESCE(MAX(round), -1) FROM reports").fetchone()[0])
            if latest + 1 < len(self.history):
                self.history = []
            self.history = [*self.history, *stored_reports(connection, len(self.history), latest)]
        return self.history

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        path = (self.folder / DATABASE).absolute()
        # Without a write-ahead log nobody is writing. SQLite has to be told: it would create a log of its own, which
        # stays behind, and which a folder that is read-only refuses.
        mode = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, timeout=5)) as connection:
                yield connection
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{DATABASE} in {self.folder} cannot be read: {error}.") from None
        except StoreError as error:
            raise StoreError(f"{error} (in {self.folder}).") from None


def stored_identity(connection: sqlite3.Connection) -> dict[str, str]:
    """The choices that decided a run's numbers, by field."""
    identity: dict[str, str] = dict(connection.execute("SELECT field, value FROM identity"))
    if identity.pop("sha256", "") != record_hash("identity", json.dumps(identity, sort_keys=True)):
        raise StoreError("the stored description of the run is damaged")
    return identity


def stored_reports(connection: sqlite3.Connection, first: int, last: int) -> list[RoundReport]:
    """The reports of the rounds `first` to `last`; each must be there, under its number, with its hash."""
    query = "SELECT round, report, sha256 FROM reports WHERE round BETWEEN ? AND ? ORDER BY round"
    rows = {number: (text, digest) for number, text, digest in connection.execute(query, (first, last))}
    history = []
    for number in range(first, last + 1):
        text, digest = rows.get(number, ("", ""))
        if record_hash("report", number, text) != digest:
            raise StoreError(f"the report of round {number} is damaged or missing")
        try:
            history.append(from_json(text))
        except (ValueError, KeyError, TypeError) as error:  # whole, and written by another version
            raise StoreError(f"the report of round {number} cannot be read ({type(error).__name__})") from None
    return history


def record_hash(kind: str, *parts: int | str | bytes) -> str:
    """The SHA-256 of a record: its kind, then each part behind its length, so that no two records read alike."""
    state = hashlib.sha256(kind.encode())
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        state.update(len(data).to_bytes(8, "big"))
        state.update(data)
    return state.hexdigest()
