"""Whose keys a server lets in now, and lines about nodes that join, leave and come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from fedtempo.deploy.membership.keys import public_keys
from fedtempo.errors import ConfigError, FedTempoError, first_line
from fedtempo.training.log import LOGGER

BETWEEN_LOOKS = 1.0
"""Seconds between looks at the folder of keys and at who is connected."""
BETWEEN_NOTES = 5.0


class Doors(Protocol):
    """Where nodes come in."""

    def admit(self, keys: Mapping[bytes, str], /) -> None:
        """Let in the nodes with these public keys from now on, and nobody else."""
        ...

    def present(self) -> Mapping[int, bytes]:
        """The nodes that are connected now, and their public keys."""
        ...


def admitted_keys(folder: Path) -> dict[bytes, str]:
    """The public keys in the server's folder as nodes send them, and the names of their files without `.pub`."""
    found: dict[bytes, str] = {}
    for path in public_keys(folder):
        try:
            key = load_ssh_public_key(path.read_bytes())
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            raise ConfigError(f"{path} must be a public key. It cannot be read: {first_line(error)}.") from None
        found[key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)] = path.stem
    return found


class Attendance:
    """Follows the folder of keys, and says who comes and goes, until the end of the block."""

    def __init__(self, doors: Doors, keys: Path | None, note: Callable[[Mapping[str, bytes]], None]) -> None:
        """`note` gets the public keys of the nodes that have been seen, by the nodes' names, every few seconds."""
        self._note, self._noted = note, 0.0
        self._doors, self._folder = doors, keys
        self._names: dict[bytes, str] = {}
        self._admitted: set[bytes] = set()
        self._here: dict[int, bytes] = {}
        self._known: dict[int, bytes] = {}
        self._trouble = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="attendance", daemon=True)

    def __enter__(self) -> Self:
        self._follow()  # what cannot be done at the start is an error
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._known:  # a short run ends between two notes
            self._say_who()

    def name(self, node: int) -> str:
        """What a node is called: the name of its key's file, else its number."""
        known = self._known.get(node) or self._doors.present().get(node, b"")
        return f"node {self._names.get(known, node)}"

    def _watch(self) -> None:
        while not self._over.wait(BETWEEN_LOOKS):
            self.look()

    def look(self) -> None:
        """Let in whose key is new, put out whose key is gone, and say who has come and gone."""
        try:
            self._follow()
            self._trouble = ""
        except FedTempoError as error:  # whoever was admitted stays so: a run must not end over a damaged file
            if str(error) != self._trouble:
                LOGGER.warning("the nodes' keys are as they were: %s", error)
            self._trouble = str(error)
        here = dict(self._doors.present())
        for node in here.keys() - self._here.keys():
            how = "is back" if node in self._known else "has joined"
            self._known[node] = here[node]
            LOGGER.info("%s %s", self.name(node), how)
        for node in self._here.keys() - here.keys():
            LOGGER.warning("%s has left", self.name(node))
        if here != self._here or time.monotonic() > self._noted + BETWEEN_NOTES:
            self._say_who()
        self._here = here

    def _say_who(self) -> None:
        self._noted = time.monotonic()
        self._note({self.name(node): key for node, key in self._known.items()})

    def _follow(self) -> None:
        if self._folder is None:
            return
        keys = admitted_keys(self._folder)
        self._names |= keys
        if keys.keys() != self._admitted:
            self._doors.admit(keys)
            for key in self._admitted - keys.keys():
                LOGGER.warning("node %s is let in no more: its key was removed", self._names[key])
            self._admitted = set(keys)
