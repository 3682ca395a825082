"""A durable store: one SQLite database per run, one transaction per round.

Every record has a SHA-256 over its key and its bytes, and the shared record has a sum over all clients' hashes, so a
record that was altered, renamed or lost is noticed. The last two rounds are kept: where the newest is damaged, the run
goes back one round and says so; where both are, it refuses to go on.
"""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from fedtempo.errors import OutputError, StoreError
from fedtempo.params import Params
from fedtempo.training.faultpoints import fault
from fedtempo.training.reader import DATABASE, record_hash, stored_identity, stored_reports
from fedtempo.training.round_report import RoundReport, to_json
from fedtempo.training.state import State, state_from_bytes, state_to_bytes, tensors_from_bytes, tensors_to_bytes

LOCK = "run.lock"
_MODULUS = 1 << 256
_CLIENT = "SELECT tensors, sha256 FROM clients WHERE client = ?"
_TABLES = """
CREATE TABLE identity (field TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE shared (round INTEGER PRIMARY KEY, tensors BLOB NOT NULL, numbers TEXT NOT NULL,
                     manifest TEXT NOT NULL, sha256 TEXT NOT NULL) STRICT;
CREATE TABLE clients (client INTEGER PRIMARY KEY, tensors BLOB NOT NULL, sha256 TEXT NOT NULL) STRICT;
CREATE TABLE earlier (client INTEGER PRIMARY KEY, tensors BLOB, sha256 TEXT) STRICT;
CREATE TABLE reports (round INTEGER PRIMARY KEY, report TEXT NOT NULL, sha256 TEXT NOT NULL) STRICT;
"""


class Saved(NamedTuple):
    """What a stopped run left: its state after the last committed round, and the reports up to it."""

    state: State
    history: list[RoundReport]


class DurableStore:
    """The store of a run folder. `earlier` holds what the newest round's clients had before it."""

    def __init__(self, folder: Path, identity: Mapping[str, str], resume: bool, commit_every: int = 1) -> None:
        self._path = folder / DATABASE
        self._every = commit_every
        self._waiting: list[str] = []
        self._personal: dict[int, Params] = {}
        self._state: State | None = None
        self._round = -1
        self._lock = _locked(folder)
        try:
            self._connection = _opened(self._path, dict(identity), resume)
            self._manifest = _summed(self._connection)
        except BaseException:
            self._lock.release()
            raise

    def load(self, template: State) -> Saved | None:
        """The last committed round, or None. Damage is an error or, for one round, a loud step back."""
        try:
            rounds = [row[0] for row in self._connection.execute("SELECT round FROM shared ORDER BY round DESC")]
            if not rounds:
                self._require_empty()
                return None
            try:
                return self._saved(rounds[0], template)
            except StoreError as error:
                return self._one_round_back(rounds, template, error)
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self._path.name} is damaged: {error}. Start afresh in another folder.") from None

    def get(self, client: int) -> Params | None:
        """A client's personal tensors; damaged ones are an error, never a new client."""
        if client in self._personal:
            return self._personal[client]
        row = self._read(_CLIENT, client)
        if row is None:
            return None
        if record_hash("client", client, row[0]) != row[1]:
            raise StoreError(f"the stored state of client {client} is damaged.")
        return tensors_from_bytes(row[0])

    def commit(self, state: State, personal: Mapping[int, Params], report: RoundReport) -> None:
        """Keep a round; every `commit_every` rounds what was kept is written in one transaction."""
        self._state, self._round = state, report.round
        self._personal.update(personal)
        self._waiting.append(to_json(report))
        if len(self._waiting) >= self._every:
            self._write()

    def items(self) -> Iterator[tuple[int, Params]]:
        """All clients seen so far, in ascending order, one at a time."""
        with closing(sqlite3.connect(self._path)) as connection:
            clients = [row[0] for row in connection.execute("SELECT client FROM clients ORDER BY client")]
        for client in sorted({*clients, *self._personal}):
            state = self.get(client)
            assert state is not None
            yield client, state

    def close(self) -> None:
        """Write what is still waiting and release the folder. Reading stays possible."""
        try:
            if self._waiting:
                self._write()
        finally:
            self._connection.close()
            self._lock.release()

    def _read(self, query: str, client: int) -> tuple[bytes, str] | None:
        try:
            try:
                row = self._connection.execute(query, (client,)).fetchone()
            except sqlite3.ProgrammingError:  # closed: the run is over
                with closing(sqlite3.connect(self._path)) as connection:
                    row = connection.execute(query, (client,)).fetchone()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self._path.name} is damaged: {error}.") from None
        return None if row is None else (row[0], row[1])

    def _write(self) -> None:
        """One transaction: shared state, personal states, reports."""
        assert self._state is not None
        connection = self._connection
        fault("commit:begin")
        try:
            connection.execute("BEGIN IMMEDIATE")
            manifest = self._write_clients()
            fault("commit:clients")
            tensors, numbers = state_to_bytes(self._state)
            shared = (self._round, tensors, numbers, f"{manifest:064x}")
            connection.execute("INSERT INTO shared VALUES (?, ?, ?, ?, ?)", (*shared, record_hash("shared", *shared)))
            connection.execute(
                "DELETE FROM shared WHERE round NOT IN (SELECT round FROM shared ORDER BY round DESC LIMIT 2)"
            )
            fault("commit:shared")
            for offset, report in enumerate(reversed(self._waiting)):
                number = self._round - offset
                record = (number, report, record_hash("report", number, report))
                connection.execute("INSERT INTO reports VALUES (?, ?, ?)", record)
            fault("commit:reports")
            connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):  # a disk that fails may fail again; the next process rolls back then
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise OutputError(f"round {self._round} cannot be written to {self._path}: {error}.") from None
            raise
        fault("commit:end")
        self._manifest, self._waiting, self._personal = manifest, [], {}

    def _write_clients(self) -> int:
        """Write personal states, keep the ones they replace, and return the new sum of all hashes."""
        manifest = self._manifest
        self._connection.execute("DELETE FROM earlier")
        for client, tensors in self._personal.items():
            before = self._connection.execute(_CLIENT, (client,)).fetchone()
            self._connection.execute("INSERT INTO earlier VALUES (?, ?, ?)", (client, *(before or (None, None))))
            data = tensors_to_bytes(tensors)
            digest = record_hash("client", client, data)
            self._connection.execute("INSERT OR REPLACE INTO clients VALUES (?, ?, ?)", (client, data, digest))
            manifest += _token(client, digest) - (_token(client, before[1]) if before else 0)
        return manifest % _MODULUS

    def _saved(self, round_number: int, template: State) -> Saved:
        query = "SELECT tensors, numbers, manifest, sha256 FROM shared WHERE round = ?"
        row = self._connection.execute(query, (round_number,)).fetchone()  # a damaged tree lists rows it cannot find
        if row is None or record_hash("shared", round_number, *row[:3]) != row[3]:
            raise StoreError(f"the stored state of round {round_number} is damaged")
        tensors, numbers, manifest, _ = row
        if int(manifest, 16) != _summed(self._connection):
            raise StoreError(f"the stored clients do not belong to round {round_number}")
        history = stored_reports(self._connection, 0, round_number)
        return Saved(state_from_bytes(tensors, numbers, template), history)

    def _one_round_back(self, rounds: list[int], template: State, damage: StoreError) -> Saved:
        if len(rounds) < 2:
            raise StoreError(f"{damage}, and there is no earlier one. Start afresh in another folder.")
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("DELETE FROM clients WHERE client IN (SELECT client FROM earlier)")
            connection.execute("INSERT INTO clients SELECT * FROM earlier WHERE tensors IS NOT NULL")
            connection.execute("DELETE FROM earlier")
            connection.execute("DELETE FROM shared WHERE round > ?", (rounds[1],))
            connection.execute("DELETE FROM reports WHERE round > ?", (rounds[1],))
            saved = self._saved(rounds[1], template)
            connection.execute("COMMIT")
        except StoreError as error:
            connection.execute("ROLLBACK")
            raise StoreError(f"{damage}; {error}. Start afresh in another folder.") from None
        self._manifest = _summed(connection)
        warnings.warn(f"{damage}: going on from round {rounds[1]}", RuntimeWarning, stacklevel=2)
        return saved

    def _require_empty(self) -> None:
        for table in ("clients", "reports"):
            if self._connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():
                raise StoreError("the stored shared state is missing. Start afresh in another folder.")


def _locked(folder: Path) -> FileLock:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        raise OutputError(f"out must be a folder that no other process uses. Got {folder}.") from None
    except OSError as error:
        raise OutputError(f"out must be a folder that can be written. Got {folder}: {error.strerror}.") from None
    return lock


def _opened(path: Path, identity: dict[str, str], resume: bool) -> sqlite3.Connection:
    if path.exists() and not resume:
        raise OutputError(f"out must be a new folder, or a run to resume. Got {path.parent}, which holds a run.")
    if resume and not path.exists():
        raise OutputError(f"a folder to resume must hold a run. Got {path.parent}, which does not.")
    connection = None
    try:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA page_size=16384")  # tensors are large
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        if not resume:
            _created(connection, identity)
        _check_identity(connection, identity)
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        if resume:
            raise StoreError(f"{path.name} cannot be used: {error}.") from None
        for part in path.parent.glob(f"{path.name}*"):
            part.unlink()  # a run that has not begun leaves no half of a database
        raise OutputError(f"out must be a folder that can be written. Got {path.parent}: {error}.") from None
    return connection


def _created(connection: sqlite3.Connection, identity: dict[str, str]) -> None:
    """Tables and identity in one transaction: a folder has both or neither."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES.strip().split(";\n"):
        connection.execute(statement.rstrip(";"))
    rows = [*identity.items(), ("sha256", record_hash("identity", json.dumps(identity, sort_keys=True)))]
    connection.executemany("INSERT INTO identity VALUES (?, ?)", rows)
    connection.execute("COMMIT")


def _check_identity(connection: sqlite3.Connection, identity: dict[str, str]) -> None:
    try:
        stored = stored_identity(connection)
    except StoreError as error:
        raise StoreError(f"{error}. Start afresh in another folder.") from None
    for field in dict.fromkeys([*identity, *stored]):
        if stored.get(field) != identity.get(field):
            raise OutputError(
                f"{field} must be that of the stored run, {stored.get(field)!r}. Got {identity.get(field)!r}."
            )


def _summed(connection: sqlite3.Connection) -> int:
    """The sum of all clients' hashes: it changes when a client's record is altered, renamed, lost or added."""
    try:
        return sum(_token(*row) for row in connection.execute("SELECT client, sha256 FROM clients")) % _MODULUS
    except sqlite3.DatabaseError as error:
        raise StoreError(f"the stored clients are damaged: {error}") from None


def _token(client: int, digest: str) -> int:
    return int(record_hash("row", client, digest), 16)
