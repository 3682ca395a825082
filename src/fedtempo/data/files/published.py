"""What a data set is known by: its loader, its published files with their SHA-256 sums, its licence and citation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedtempo.data.table import Table

PER_CLIENT = 500
"""Bytes that a run keeps about a client, whatever its rows: its number, its row numbers, its places in lists."""


@dataclass(frozen=True)
class File:
    """One file: its name on disk, the sums it may have, and where it is downloaded from (None: nowhere as one file).

    Where a file is known in two versions (the official archive and a sample or a repacked copy), both sums are listed,
    the official one first; the size is the official one's.
    """

    name: str
    sha256: tuple[str, ...] = ()
    size: int = 0
    url: str | None = None
    folder: str | None = None
    """The folder below the data directory, where it is not the data set's own."""


@dataclass(frozen=True)
class DataSet:
    """A data set: `load` makes its table, from `Sources` where there are files. One without files is generated.

    Each of `ways` names files that suffice to load it; the first that is complete is read.
    """

    name: str
    load: Callable[..., Table]
    page: str
    licence: str
    citation: str
    clients: str
    """Whose rows they are, where the data themselves say so."""
    about: str
    files: tuple[File, ...] = ()
    ways: tuple[tuple[str, ...], ...] = ()
    folder: str = ""
    """The folder below the data directory; the data set's name by default."""
    size: Callable[..., float] | None = None
    """For one that is generated: about how many bytes it takes, by the settings of `load`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", self.folder or self.name)

    def file(self, name: str) -> File:
        """The file of this name; one that is not listed has no pinned sum."""
        return next((f for f in self.files if f.name == name), File(name))

    @property
    def downloads(self) -> tuple[File, ...]:
        """The files that `fedtempo data get` fetches: those of the first way that has an address for each."""
        for way in self.ways:
            if all(self.file(name).url for name in way):
                return tuple(map(self.file, way))
        return ()
