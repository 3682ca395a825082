"""A store on disk: one SQLite database per run, one transaction per commit (a round, unless `commit_every` says more).

Every record has a hash that is bound to the run (`seals.py`), the shared record also the manifest, a sum over all
clients' hashes: what was altered, lost, or belongs to another run or moment, is noticed. The last two rounds are kept.
If the newest is damaged, the run goes back one round and warns; if both are, it stops.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from fedtempo.errors import OutputError, StoreError
from fedtempo.params import Params
from fedtempo.training.faultpoints import fault
from fedtempo.training.round_report import RoundReport, to_json
from fedtempo.training.state import State, state_from_bytes, state_to_bytes, tensors_from_bytes, tensors_to_bytes
from fedtempo.training.storage.database import DAMAGE, DATABASE, create, opened, require_run, write_identity
from fedtempo.training.storage.folders import COUNT, LOCK, RoundCount, locked, require_there
from fedtempo.training.storage.in_memory import Saved, Waiting
from fedtempo.training.storage.kinds import Here, Kinds
from fedtempo.training.storage.seals import MALFORMED, Seal
from fedtempo.training.storage.selected_round import Changes, Selected, SelectionTables

__all__ = ["DATABASE", "LOCK", "DurableStore"]
_LOG = logging.getLogger("fedtempo")
_MODULUS = 1 << 256
_CLIENT = "SELECT tensors, sha256 FROM clients WHERE client = ?"
_SHARED = "SELECT tensors, numbers, manifest, sha256 FROM shared WHERE round = ?"


class DurableStore:
    """The store of a run folder. Its table `earlier` holds what the newest round's clients had before that round.

    `claimed` is called when the lock of a new folder is held and before a run is created in it.
    """

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, str],
        resume: bool,
        here: Here,
        commit_every: int = 1,
        claimed: Callable[[Path], None] | None = None,
        extend: Callable[[int], None] | None = None,
    ) -> None:
        self._path, self._every = folder / DATABASE, commit_every
        self._kept: Waiting | None = None
        if resume:
            require_there(folder)
        self._lock = locked(folder)
        try:
            require_run(self._path, resume)
            if not resume:
                if claimed is not None:
                    claimed(folder)
                create(self._path, Seal.new(identity).on_kinds(Kinds(((0, here.kind),), here.rough()).to_text()))
            self._connection, self._seal = opened(self._path, identity, resume, here, extend)
            self.planned, self.kinds = self._seal.planned, Kinds.stored(self._seal.kinds)
            self._count = RoundCount(folder, self._seal)
            self._manifest, self._last_hash, self._selection = 0, "", Changes()
            self._tables = SelectionTables(self._connection, self._seal)
        except BaseException:
            self._lock.release()
            raise

    def load(self, template: State) -> Saved | None:
        """The last committed round, or None. Damage is an error or, if the round before is sound, a warning."""
        try:
            rounds = [row[0] for row in self._connection.execute("SELECT round FROM shared ORDER BY round DESC")]
            if not rounds:
                self._require_empty()
                return None
            damage = None
            try:
                saved = self._saved(rounds[0], template)
            except StoreError as error:
                damage, saved = error, self._one_round_back(rounds, template, error)
            return saved._replace(lost=self._tell_losses(len(saved.history), damage))
        except DAMAGE as error:
            raise StoreError(f"{self._path.name} is damaged: {error}. Start afresh in another folder.") from None

    @property
    def selected(self) -> Selected | None:
        """The state of the round that validation has selected; None if it has selected none."""
        return (self._kept.selection if self._kept else self._selection).selected

    def get(self, client: int, selected: bool = False) -> Params | None:
        """A client's personal tensors; damaged ones are an error, never a new client."""
        if selected and self.selected is not None:
            waiting = self._kept.selection if self._kept else self._selection
            known, tensors = self._put_aside(waiting, self.selected.round, client)
            if known:
                return tensors
        if self._kept is not None and client in self._kept.personal:
            return self._kept.personal[client]
        return self._stored(client)

    def _put_aside(self, waiting: Changes, selection: int, client: int) -> tuple[bool, Params | None]:
        if not waiting.is_new:
            known, tensors = self._asked(lambda connection: self._tables.get(connection, selection, client))
            if known:
                return True, tensors
        if client not in waiting.aside:
            return False, None
        tensors = waiting.aside[client]
        return True, self._stored(client) if tensors is None else tensors

    def _stored(self, client: int) -> Params | None:
        row = self._asked(lambda connection: connection.execute(_CLIENT, (client,)).fetchone())
        if row is None:
            return None
        if self._seal.hash("client", client, row[0]) != row[1]:
            raise StoreError(f"the stored state of client {client} is damaged.")
        return tensors_from_bytes(row[0])

    def commit(self, state: State, personal: Mapping[int, Params], report: RoundReport) -> None:
        """Keep a round; every `commit_every` rounds what was kept is written in one transaction."""
        earlier = self._kept
        # One assignment, so that Ctrl-C finds the round kept or not kept, and never half of it.
        self._kept = Waiting(
            report.round,
            state,
            {**(earlier.personal if earlier else {}), **personal},
            [*(earlier.reports if earlier else []), to_json(report)],
            (earlier.selection if earlier else self._selection).after(
                report.round, state, report.selects, earlier.personal if earlier else {}, personal
            ),
        )
        # A private run's key is written at once. Without it, a resumed run would repeat reported rounds with new noise.
        if len(self._kept.reports) >= self._every or (state.secret is not None and not self._last_hash):
            self._write(self._kept)

    def go_on(self, kind: Mapping[str, str], done: int) -> None:
        """Write down that the run goes on: on this kind of processor, and to as many rounds as it was opened with."""
        self.kinds = self.kinds.then(kind, done)
        self._seal = self._seal.on_kinds(self.kinds.to_text())
        write_identity(self._connection, self._seal)

    def restate(self, state: State) -> None:
        """Replace the state of the newest committed round; before the first one, keep it as that of round -1."""
        newest = self._connection.execute("SELECT round, manifest FROM shared ORDER BY round DESC LIMIT 1").fetchone()
        number, manifest = newest or (-1, f"{0:064x}")  # no client has a state yet
        row = (number, *state_to_bytes(state), manifest)
        digest = self._seal.hash("shared", *row, self._last_hash)
        try:
            self._connection.execute("REPLACE INTO shared VALUES (?, ?, ?, ?, ?)", (*row, digest))
        except sqlite3.Error as error:
            raise OutputError(f"round {row[0]} cannot be written to {self._path}: {error}.") from None

    def items(self) -> Iterator[tuple[int, Params]]:
        """All clients seen so far, in ascending order, one at a time."""
        try:
            with closing(sqlite3.connect(self._path)) as connection:
                clients = [row[0] for row in connection.execute("SELECT client FROM clients ORDER BY client")]
        except DAMAGE as error:
            raise StoreError(f"{self._path.name} is damaged: {error}.") from None
        for client in sorted({*clients, *(self._kept.personal if self._kept else {})}):
            state = self.get(client)
            if state is None:
                raise StoreError(f"the stored state of client {client} is missing.")
            yield client, state

    def close(self) -> None:
        """Write what is still waiting and release the folder. Reading stays possible."""
        try:
            if self._kept is not None:
                self._write(self._kept)
        finally:
            self._connection.close()
            self._lock.release()

    def _asked(self, question: Callable[[sqlite3.Connection], Any]) -> Any:
        try:
            try:
                return question(self._connection)
            except sqlite3.ProgrammingError:  # the run is over and the connection closed, but results can still be read
                with closing(sqlite3.connect(self._path)) as connection:
                    return question(connection)
        except DAMAGE as error:
            raise StoreError(f"{self._path.name} is damaged: {error}.") from None

    def _write(self, kept: Waiting) -> None:
        """One transaction: shared state, personal states, reports. `fault` is where tests let the process die."""
        connection = self._connection
        fault("commit:begin")
        try:
            connection.execute("BEGIN IMMEDIATE")
            # Ctrl-C may have come right after COMMIT, before `_kept` was cleared: then these rounds are written
            # already.
            if connection.execute("SELECT 1 FROM shared WHERE round = ?", (kept.round,)).fetchone():
                connection.execute("ROLLBACK")
                self._selection, self._kept = Changes(kept.selection.selected), None
                return
            aside = self._tables.write(kept.selection, kept.round)
            manifest = self._write_clients(kept.personal)
            fault("commit:clients")
            last = self._write_reports(kept)
            fault("commit:reports")
            shared = (kept.round, *state_to_bytes(kept.state), f"{(manifest + aside) % _MODULUS:064x}")
            digest = self._seal.hash("shared", *shared, last)
            connection.execute("INSERT INTO shared VALUES (?, ?, ?, ?, ?)", (*shared, digest))
            connection.execute(
                "DELETE FROM shared WHERE round NOT IN (SELECT round FROM shared ORDER BY round DESC LIMIT 2)"
            )
            fault("commit:shared")
            connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):  # a disk that fails may fail again; the next process rolls back then
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise OutputError(f"round {kept.round} cannot be written to {self._path}: {error}.") from None
            raise
        fault("commit:end")
        self._tables.committed(kept.selection, aside)
        self._manifest, self._last_hash = manifest, last
        self._selection, self._kept = Changes(kept.selection.selected), None
        with suppress(OSError):  # the round is safe; only its count is not
            self._count.write(kept.round + 1)

    def _write_clients(self, personal: Mapping[int, Params]) -> int:
        """Write personal states, keep the ones they replace, and return the new sum of all hashes."""
        manifest = self._manifest
        self._connection.execute("DELETE FROM earlier")
        for client, tensors in personal.items():
            before = self._connection.execute(_CLIENT, (client,)).fetchone()
            self._connection.execute("INSERT INTO earlier VALUES (?, ?, ?)", (client, *(before or (None, None))))
            data = tensors_to_bytes(tensors)
            digest = self._seal.hash("client", client, data)
            self._connection.execute("INSERT OR REPLACE INTO clients VALUES (?, ?, ?)", (client, data, digest))
            # The manifest is a sum, so replacing one client costs the same whether there are ten or a million.
            manifest += self._token(client, digest) - (self._token(client, before[1]) if before else 0)
        return manifest % _MODULUS

    def _write_reports(self, kept: Waiting) -> str:
        """Write the reports that wait, each bound to the one before it, and return the hash of the last."""
        last = self._last_hash
        for number, report in enumerate(kept.reports, kept.round + 1 - len(kept.reports)):
            last = self._seal.report_hash(number, report, last)
            self._connection.execute("INSERT INTO reports VALUES (?, ?, ?)", (number, report, last))
        return last

    def _saved(self, round_number: int, template: State) -> Saved:
        rows = self._connection.execute(
            "SELECT round, report, sha256 FROM reports WHERE round <= ? ORDER BY round", (round_number,)
        )
        history, last = self._seal.history(rows)
        if len(history) != round_number + 1:
            raise StoreError(f"the report of round {len(history)} is missing")
        row = self._connection.execute(_SHARED, (round_number,)).fetchone()  # a damaged tree lists rows it cannot find
        if row is None or self._seal.hash("shared", round_number, *row[:3], last) != row[3]:
            raise StoreError(f"the stored state of round {round_number} is damaged")
        tensors, numbers, manifest, _ = row
        selection = max((report.round for report in history if report.selects), default=None)
        selected, clients = self._tables.load(selection, template), self._summed()
        if manifest != f"{(clients + self._tables.sum) % _MODULUS:064x}":
            raise StoreError(f"the stored clients do not belong to round {round_number}")
        try:
            state = state_from_bytes(tensors, numbers, template)
        except MALFORMED as error:
            kind = type(error).__name__
            raise StoreError(f"the stored state of round {round_number} cannot be read ({kind})") from None
        self._manifest, self._last_hash, self._selection = clients, last, Changes(selected)
        return Saved(state, history)

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
            self._tables.go_back(rounds[1])
            saved = self._saved(rounds[1], template)
            connection.execute("COMMIT")
        except StoreError as error:
            connection.execute("ROLLBACK")
            raise StoreError(f"{damage}; {error}. Start afresh in another folder.") from None
        return saved

    def _tell_losses(self, rounds: int, damage: StoreError | None) -> int:
        """How many committed rounds are lost. Warn if there are some, and delete what is left of them."""
        (newest,) = self._connection.execute("SELECT COALESCE(MAX(round), -1) FROM reports").fetchone()
        counted = self._count.read()
        committed: int = max(rounds, newest + 1, counted or 0)
        if counted is None:
            _LOG.warning("%s is missing or damaged: rounds after round %d may be lost", COUNT, committed)
        if committed > rounds:
            self._connection.execute("DELETE FROM reports WHERE round >= ?", (rounds,))
            why = str(damage or f"{self._path.name} or its log is damaged").rstrip(".")
            lost = f"{committed - rounds} of {committed} committed rounds are lost: going on after round {rounds}"
            _LOG.warning("%s; %s", why, lost)
            with suppress(OSError):  # then it is told again next time
                self._count.write(rounds)
        return committed - rounds

    def _require_empty(self) -> None:
        for anything in ("SELECT 1 FROM clients LIMIT 1", "SELECT 1 FROM reports LIMIT 1"):
            if self._connection.execute(anything).fetchone():
                raise StoreError("the stored shared state is missing. Start afresh in another folder.")
        if committed := self._count.read():
            lost = f"is damaged: all {committed} committed rounds are lost"
            raise StoreError(f"{self._path.name} {lost}. Start afresh in another folder.")
        if committed is None:  # a run that has just begun has one that says 0
            why = f"holds no round, and {COUNT}, which says how many there were, is missing or damaged"
            raise StoreError(f"{self._path.name} {why}. Start afresh in another folder.")

    def _summed(self) -> int:
        """The sum of all clients' hashes: it changes when a client's record is altered, renamed, lost or added."""
        try:
            rows = self._connection.execute("SELECT client, sha256 FROM clients")
            return sum(self._token(*row) for row in rows) % _MODULUS
        except DAMAGE as error:
            raise StoreError(f"the stored clients are damaged: {error}") from None

    def _token(self, client: int, digest: str) -> int:
        return int(self._seal.hash("row", client, digest), 16)
