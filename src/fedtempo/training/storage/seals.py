"""What binds a stored record to its run: a hash over the run's name, its identity, and the record's key and bytes.

A run draws a random name when it is created. Two runs of one experiment have the same identity but not the same name,
so no record of one passes for a record of the other. Reports form a chain: the hash of each covers the hash of the one
before, and the hash of a round's state covers that of its report, so records of two continuations do not mix either.

The hashes notice damage. They are no signature: somebody who writes a whole folder can compute them.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from fedtempo.errors import StoreError
from fedtempo.training.round_report import RoundReport, from_json, require_form

NAME, HASH = "run", "sha256"
"""Rows of the identity table that are not fields of the identity."""
ROUNDS, EXTENDED = "rounds", "extended"
"""The field that may grow, and the row that says how far it has; hashes stay those of the run as it began."""
KINDS = "kinds"
"""The row that says which kinds of processor the run was on (`kinds.py`)."""
ADDED = (EXTENDED, KINDS)
"""Rows that may change while the run goes on. Each ends with a hash of its own."""
MOST_DIGITS = 18
"""Of the number of rounds."""
MALFORMED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading a record may raise if its hash is right but its content has another form."""


class Seal:
    """Makes the hashes of one run's records."""

    def __init__(self, name: str, identity: Mapping[str, str], added: Mapping[str, str] | None = None) -> None:
        self.name, self._began = name, dict(identity)
        self._added = {field: value for field, value in (added or {}).items() if value}
        extended = self._added.get(EXTENDED)
        self.identity = {**identity, ROUNDS: extended} if extended else dict(identity)
        self._start = hashlib.sha256(json.dumps([name, sorted(identity.items())]).encode())

    @classmethod
    def new(cls, identity: Mapping[str, str]) -> Seal:
        """The seal of a run that begins."""
        return cls(secrets.token_hex(16), identity)

    @classmethod
    def stored(cls, rows: Iterable[tuple[Any, Any]]) -> Seal:
        """The seal of a stored run, from the rows of its identity table. Anything but our own rows is damage."""
        fields = list(rows)
        if all(isinstance(field, str) and isinstance(value, str) for field, value in fields):
            identity = dict(fields)
            name, digest = identity.pop(NAME, ""), identity.pop(HASH, "")
            marked = {field: identity.pop(field).rpartition(" ") for field in ADDED if field in identity}
            seal = cls(name, identity, {field: value for field, (value, _, _) in marked.items()})
            whole = all(value and mark == seal.hash(field, value) for field, (value, _, mark) in marked.items())
            # A number of more digits takes long to read, or cannot be read at all.
            rounds = (identity.get(ROUNDS, "0"), seal.identity.get(ROUNDS, "0"))
            counts = all(text.isdecimal() and len(text) <= MOST_DIGITS for text in rounds)
            if name and digest == seal.hash("identity") and whole and counts:
                return seal
        raise StoreError("the stored description of the run is damaged.")

    def rows(self) -> list[tuple[str, str]]:
        """The rows of the identity table."""
        more = [(field, f"{value} {self.hash(field, value)}") for field, value in self._added.items()]
        return [*self._began.items(), (NAME, self.name), (HASH, self.hash("identity")), *more]

    @property
    def planned(self) -> int | None:
        """The rounds that the run was to have when it began."""
        rounds = self._began.get(ROUNDS, "")
        return int(rounds) if rounds.isdecimal() else None

    def extended(self, rounds: int) -> Seal:
        """The seal of the same run with more rounds."""
        return self._with(EXTENDED, str(rounds))

    @property
    def kinds(self) -> str:
        """Which kinds of processor the run was on; empty in a folder of an older release."""
        return self._added.get(KINDS, "")

    def on_kinds(self, kinds: str) -> Seal:
        """The seal of the same run with another record of its kinds."""
        return self._with(KINDS, kinds)

    def _with(self, field: str, value: str) -> Seal:
        return Seal(self.name, self._began, {**self._added, field: value})

    def hash(self, kind: str, *parts: object) -> str:
        """The hash of a record. Types and lengths are part of it: 5, "5" and b"5" differ."""
        state = self._start.copy()
        for part in (kind, *parts):
            data = part if isinstance(part, bytes) else str(part).encode()
            state.update(f"{type(part).__name__} {len(data)}\n".encode())
            state.update(data)
        return state.hexdigest()

    def report_hash(self, number: int, report: str, before: str) -> str:
        """The hash of a round's report; `before` is that of the round before, and empty for the first."""
        return self.hash("report", number, report, before)

    def history(
        self, rows: Iterable[tuple[Any, Any, Any]], first: int = 0, last: str = ""
    ) -> tuple[list[RoundReport], str]:
        """Reports from rows of (round, report, sha256) in ascending order, and the hash of the last.

        The rows may begin with round `first`; `last` is then the hash of the round before.
        """
        history: list[RoundReport] = []
        for expected, (number, report, digest) in enumerate(rows, first):
            if number != expected or self.report_hash(number, report, last) != digest:
                raise StoreError(f"the report of round {expected} is damaged or missing")
            try:
                history.append(from_json(report))
                require_form(history[-1].round == number, "round")
            except MALFORMED as error:
                message = f"the report of round {number} cannot be read ({type(error).__name__})"
                raise StoreError(message) from None
            last = digest
        return history, last
