"""Archives are read member by member, into memory, after every name and size has been looked at.

Nothing is ever unpacked to a path that the archive chose: the loaders turn members into arrays and write those
under names of their own.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, cast

import numpy as np

from fedtempo.data.files.safe import check_ratio, kind_of, open_gzip, read_npy
from fedtempo.errors import DataError

MOST_MEMBERS = 100_000
LONGEST_NAME = 255
_UNIX_TYPE, _UNIX_FILE, _UNIX_FOLDER = 0o170000, 0o100000, 0o040000
_DAMAGE = (EOFError, OSError, ValueError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error)

Wanted = Callable[[str], bool]


def read_zip(path: Path, wanted: Wanted) -> list[tuple[str, bytes]]:
    """The wanted members of a zip file, in the order of their names."""
    with _opened_zip(path) as archive:
        entries = archive.infolist()
        check_names(path.name, (entry.filename for entry in entries))
        for entry in entries:
            _check_zip_entry(path.name, entry)
        check_ratio(path.name, path.stat().st_size, sum(entry.file_size for entry in entries))
        chosen = sorted((e for e in entries if not e.is_dir() and wanted(e.filename)), key=lambda e: e.filename)
        return [(entry.filename, _content(archive, entry, path.name)) for entry in chosen]


@contextmanager
def _opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    with path.open("rb") as raw:
        start = raw.read(512)
    if not start.startswith(b"PK"):
        raise DataError(f"{path.name} must be a zip file. Got {kind_of(start)}.")
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGE as error:
        raise DataError(f"{path.name} is damaged: {error}.") from None
    with archive:
        yield archive


def _check_zip_entry(archive: str, entry: zipfile.ZipInfo) -> None:
    kind = (entry.external_attr >> 16) & _UNIX_TYPE
    if kind not in (0, _UNIX_FILE, _UNIX_FOLDER):
        raise DataError(f"{archive} must hold files only. Got a link or device named {entry.filename!r}.")
    if entry.flag_bits & 1:
        raise DataError(f"{archive} must not be encrypted. Got {entry.filename!r}.")
    check_ratio(f"{archive}: {entry.filename}", entry.compress_size, entry.file_size)


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> bytes:
    try:
        with archive.open(entry) as stream:
            # One byte more than declared, so that a member that lies about its size is noticed, not read on.
            content = stream.read(entry.file_size + 1)
    except _DAMAGE as error:
        raise DataError(f"{name}: {entry.filename!r} is damaged: {error}.") from None
    if len(content) != entry.file_size:
        raise DataError(f"{name}: {entry.filename!r} must have {entry.file_size} bytes. Got {len(content)}.")
    return content


def read_tar_gz(path: Path, wanted: Wanted) -> list[tuple[str, bytes]]:
    """The wanted members of a tar.gz file, in the order of their names; the whole archive is looked at first."""
    names: list[str] = []
    for member in _tar_members(path):
        if not (member.isreg() or member.isdir()):
            raise DataError(f"{path.name} must hold files only. Got a link or device named {member.name!r}.")
        names.append(member.name)
        if len(names) > MOST_MEMBERS:
            raise DataError(f"{path.name} must have at most {MOST_MEMBERS} members. Got more.")
    check_names(path.name, names)
    return sorted(_tar_contents(path, wanted))


def _tar_members(path: Path) -> Iterator[tarfile.TarInfo]:
    unpacked = 0
    with _opened_tar(path) as archive:
        for member in archive:
            unpacked += member.size
            check_ratio(path.name, path.stat().st_size, unpacked)
            yield member


def _tar_contents(path: Path, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    with _opened_tar(path) as archive:
        for member in archive:
            opened = archive.extractfile(member) if member.isreg() and wanted(member.name) else None
            if opened is not None:
                yield member.name, opened.read()


@contextmanager
def _opened_tar(path: Path) -> Iterator[tarfile.TarFile]:
    with open_gzip(path, path.name) as stream:
        try:
            with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as archive:
                yield archive
        except DataError:
            raise
        except _DAMAGE as error:
            raise DataError(f"{path.name} is damaged: {error}.") from None


def check_names(archive: str, names: Iterable[str]) -> None:
    """Refuse an archive whose members could land outside a folder, or on top of each other."""
    seen: set[str] = set()
    for name in names:
        parts = PurePosixPath(name).parts
        if not name or name.startswith("/") or ".." in parts or "\\" in name or ":" in name or "\0" in name:
            raise DataError(f"{archive} must hold plain relative names. Got {name[:80]!r}.")
        if len(name) > LONGEST_NAME:
            raise DataError(f"{archive} must hold names of at most {LONGEST_NAME} characters. Got one of {len(name)}.")
        if name in seen:
            raise DataError(f"{archive} must hold every name once. Got {name!r} twice.")
        seen.add(name)
        if len(seen) > MOST_MEMBERS:
            raise DataError(f"{archive} must have at most {MOST_MEMBERS} members. Got more.")


def read_npz(path: Path, wanted: dict[str, str]) -> dict[str, np.ndarray]:
    """The arrays of an npz file that are wanted, each of the kind given ('iuf': integers or floats, 'U': text)."""
    members = read_zip(path, lambda member: member.removesuffix(".npy") in wanted)
    arrays = {member.removesuffix(".npy"): read_npy(content, f"{path.name}: {member}") for member, content in members}
    for name, array in arrays.items():
        if array.dtype.kind not in wanted[name]:
            raise DataError(f"{path.name}: array {name!r} must be of kind {wanted[name]!r}. Got {array.dtype}.")
    if missing := sorted(set(wanted) - set(arrays)):
        raise DataError(f"{path.name} must hold the array {missing[0]!r}. Got {sorted(arrays)}.")
    return arrays
