"""The database of a run: its tables, how it is created, and what is checked before a row is read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path

from fedtempo.errors import OutputError, StoreError
from fedtempo.training.storage import selected_round
from fedtempo.training.storage.folders import RoundCount, synced
from fedtempo.training.storage.kinds import Here, Kinds
from fedtempo.training.storage.seals import ROUNDS, Seal

DATABASE = "run.sqlite"
DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged database may raise: SQLite's own message may quote bytes that are no text."""
FORMAT = 3
"""The database's `user_version`. Format 2 did not hold the selected round; records of format 1 (version 0) were not
bound to their run."""
TABLES = {
    "identity": "CREATE TABLE identity (field TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "shared": (
        "CREATE TABLE shared (round INTEGER PRIMARY KEY, tensors BLOB NOT NULL, numbers TEXT NOT NULL, "
        "manifest TEXT NOT NULL, sha256 TEXT NOT NULL) STRICT"
    ),
    "clients": "CREATE TABLE clients (client INTEGER PRIMARY KEY, tensors BLOB NOT NULL, sha256 TEXT NOT NULL) STRICT",
    "earlier": "CREATE TABLE earlier (client INTEGER PRIMARY KEY, tensors BLOB, sha256 TEXT) STRICT",
    "reports": "CREATE TABLE reports (round INTEGER PRIMARY KEY, report TEXT NOT NULL, sha256 TEXT NOT NULL) STRICT",
    **selected_round.TABLES,
}


def require_run(path: Path, resume: bool) -> None:
    """A new folder holds no run, a folder to resume does."""
    if path.exists() and not resume:
        raise OutputError(f"out must be a new folder, or a run to resume. Got {path.parent}, which holds a run.")
    if resume and not path.exists():
        raise OutputError(f"a folder to resume must hold a run. Got {path.parent}, which does not.")
    journal = path.with_name(f"{path.name}-journal")
    if resume and journal.exists():
        # SQLite would obey a rollback journal, up to deleting a file that it names. Our runs never have one.
        raise StoreError(f"{path.name} is damaged: {journal.name} does not belong to a run.")


def create(path: Path, seal: Seal) -> None:
    """Make the database under another name first: a folder has tables and identity, or it has no run."""
    new = path.with_name(f"{path.name}.new")
    try:
        _remove(new)
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # users' scores and models are in there
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.execute("PRAGMA page_size=16384")  # tensors are large
            # A write-ahead log, so that `fedtempo watch` can read while a round is written; FULL, so that a committed
            # round survives a power cut.
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN IMMEDIATE")
            for statement in TABLES.values():
                connection.execute(statement)
            connection.executemany("INSERT INTO identity VALUES (?, ?)", seal.rows())
            connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.execute("COMMIT")
        RoundCount(path.parent, seal).write(0)
        new.replace(path)
        synced(path.parent)
    except (sqlite3.Error, OSError) as error:
        with suppress(OSError):
            _remove(new)
        reason = error.strerror if isinstance(error, OSError) else error
        raise OutputError(f"out must be a folder that can be written. Got {path.parent}: {reason}.") from None


def opened(
    path: Path, identity: Mapping[str, str], resume: bool, here: Here, extend: Callable[[int], None] | None = None
) -> tuple[sqlite3.Connection, Seal]:
    """The database of the run with this identity, checked, and the seal of its records.

    A run may get more rounds than it was stored with; `extend` is told how many those were and raises where it matters.
    On another kind of processor, rounding may have changed some parts. Nothing else may differ.
    """
    try:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            seal = seal_of(connection, path)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if resume:
            raise StoreError(f"{path.name} cannot be used: {error}.") from None
        _remove(path)  # a run that could not begin leaves no database
        raise OutputError(f"out must be a folder that can be written. Got {path.parent}: {error}.") from None
    try:
        _require_same(seal, identity, here, more_rounds=resume and extend is not None)
        if identity.get(ROUNDS) != seal.identity.get(ROUNDS) and extend is not None:
            extend(int(seal.identity[ROUNDS]))
            seal = seal.extended(int(identity[ROUNDS]))
    except BaseException:
        connection.close()
        raise
    return connection, seal


def write_identity(connection: sqlite3.Connection, seal: Seal) -> None:
    """Write the rows of the identity table that have changed since the run was stored."""
    try:
        stored = set(connection.execute("SELECT field, value FROM identity"))
        new = [row for row in seal.rows() if row not in stored]
        connection.executemany("INSERT OR REPLACE INTO identity VALUES (?, ?)", new)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise OutputError(f"{DATABASE} cannot be written: {error}.") from None


def _require_same(seal: Seal, identity: Mapping[str, str], here: Here, more_rounds: bool) -> None:
    """The stored run is the one with this identity, but for what rounding can have changed."""
    kinds = Kinds.stored(seal.kinds)
    rough = here.rough() if kinds.first != here.kind else {}
    for field in dict.fromkeys([*identity, *seal.identity]):
        stored, given = seal.identity.get(field), identity.get(field)
        if stored == given or (field == ROUNDS and more_rounds and _is_more(stored, given)):
            continue
        if not kinds.allow(field, rough):
            raise OutputError(f"{field} must be that of the stored run, {stored!r}. Got {given!r}.")


def _is_more(stored: str | None, given: str | None) -> bool:
    numbers = (stored or "").isdecimal() and (given or "").isdecimal()
    return numbers and int(given or 0) > int(stored or 0)


def seal_of(connection: sqlite3.Connection, path: Path) -> Seal:
    """What the records of a database must be sealed with. Tables that are not exactly ours are damage."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    found = {name: sql for name, sql in connection.execute("SELECT name, sql FROM sqlite_master") if sql is not None}
    if version != FORMAT and found.keys() == TABLES.keys():
        raise OutputError(f"a run folder must be of format {FORMAT}, which this release writes. Got {path}: {version}.")
    # A foreign view or trigger would be SQL that runs although we did not write it.
    if version != FORMAT or found != TABLES:
        raise StoreError(f"{path.name} is damaged: its tables are not those of a run.")
    return Seal.stored(connection.execute("SELECT field, value FROM identity"))


def _remove(database: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        database.with_name(f"{database.name}{suffix}").unlink(missing_ok=True)
