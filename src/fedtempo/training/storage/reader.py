"""Reading a run folder: what decided the run's numbers, and its rounds so far. Every record's hash is checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedtempo.errors import OutputError, StoreError
from fedtempo.support.files import plain_inside
from fedtempo.training.round_report import RoundReport
from fedtempo.training.storage.database import DAMAGE, DATABASE, seal_of


class RunReader:
    """Follows a run folder that may still be trained: `refresh` adds the rounds committed since the last call.

    Nothing is written, and nothing is locked for longer than one query takes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = (folder / DATABASE).absolute()
        if not self._path.is_file():
            raise OutputError(f"a run folder must hold {DATABASE}. Got {folder}, which does not.")
        for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"):
            try:
                plain_inside(folder, name)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise StoreError(f"{name} in {folder} cannot be read: {error.strerror}.") from None
        self.history: list[RoundReport] = []
        self._last = ""
        with self._connected() as connection:
            self._seal = seal_of(connection, self._path)

    @property
    def identity(self) -> dict[str, str]:
        """The choices that decided the run's numbers, by field."""
        return self._seal.identity

    def refresh(self) -> list[RoundReport]:
        """All rounds that are committed by now."""
        with self._connected() as connection:
            latest = int(connection.execute("SELECT COALESCE(MAX(round), -1) FROM reports").fetchone()[0])
            try:
                if latest + 1 < len(self.history):
                    raise StoreError("the run went back a round")
                self._read_on(connection)
            except StoreError:
                # The run may have gone back a round and trained it again, which is another chain of reports.
                self.history, self._last = [], ""
                self._read_on(connection)
        return self.history

    def _read_on(self, connection: sqlite3.Connection) -> None:
        query = "SELECT round, report, sha256 FROM reports WHERE round >= ? ORDER BY round"
        done = len(self.history)
        new, self._last = self._seal.history(connection.execute(query, (done,)), done, self._last)
        self.history = [*self.history, *new]

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        # Without a write-ahead log nobody is writing. SQLite has to be told: it would create a log of its own, which
        # stays behind, and which a folder that is read-only refuses.
        mode = "mode=ro" if Path(f"{self._path}-wal").exists() else "mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(f"{self._path.as_uri()}?{mode}", uri=True, timeout=5)) as connection:
                connection.execute("PRAGMA trusted_schema=OFF")
                yield connection
        except DAMAGE as error:
            raise StoreError(f"{DATABASE} in {self.folder} cannot be read: {error}.") from None
        except StoreError as error:
            raise StoreError(f"{self.folder}: {str(error).rstrip('.')}.") from None
