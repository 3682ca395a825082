"""Where a data set's files are: the folder asked for, else FEDTEMPO_DATA, else what was downloaded."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_dir

from fedtempo.data.files.published import DataSet, File
from fedtempo.errors import DataError
from fedtempo.support.files import write_atomically

DATA_VARIABLE = "FEDTEMPO_DATA"
CACHE_VARIABLE = "FEDTEMPO_CACHE"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Fingerprint:
    """What a file's bytes are known by."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Sources:
    """The files a loader reads, under their catalogue names, and the cache its arrays go to."""

    name: str
    paths: Mapping[str, Path]
    fingerprints: Mapping[str, Fingerprint]
    cache: Path

    def __getitem__(self, name: str) -> Path:
        return self.paths[name]

    def __contains__(self, name: str) -> bool:
        return name in self.paths

    def matching(self, suffix: str) -> list[Path]:
        """The files whose names end so, in the order of their names."""
        return [self.paths[name] for name in sorted(self.paths) if name.endswith(suffix)]


def cache_folder(cache_dir: str | Path | None = None) -> Path:
    """The folder for downloads and decoded arrays: as asked, else FEDTEMPO_CACHE, else the platform's cache."""
    chosen = cache_dir or os.environ.get(CACHE_VARIABLE) or user_cache_dir("fedtempo")
    return Path(chosen).expanduser().absolute()


def roots(data_set: DataSet, data_dir: str | Path | None, cache: Path, file: File | None = None) -> list[Path]:
    """The folders that may hold a file of this data set, best first."""
    folder = (file.folder if file else None) or data_set.folder
    given = data_dir or os.environ.get(DATA_VARIABLE)
    found = [] if not given else [Path(given).expanduser() / folder, Path(given).expanduser()]
    return found if data_dir else [*found, cache / "files" / folder]


def present(data_set: DataSet, data_dir: str | Path | None, cache: Path) -> dict[str, Path] | None:
    """The files of the first complete way to load this data set, or None."""
    for way in data_set.ways:
        found: dict[str, Path] = {}
        for wanted in way:
            hits = _search(wanted, roots(data_set, data_dir, cache, data_set.file(wanted)))
            if not hits:
                break
            found.update(hits)
        else:
            return found
    return None


def _search(wanted: str, folders: list[Path]) -> dict[str, Path]:
    for folder in folders:
        if "*" in wanted:
            hits = {path.relative_to(folder).as_posix(): path for path in sorted(folder.glob(wanted))}
            if hits:
                return hits
        elif (folder / wanted).is_file():
            return {wanted: folder / wanted}
    return {}


def locate(data_set: DataSet, data_dir: str | Path | None, cache_dir: str | Path | None, verify: bool) -> Sources:
    """The files of a data set, checked against their pinned sums unless `verify` is off."""
    cache = cache_folder(cache_dir)
    paths = present(data_set, data_dir, cache)
    if paths is None:
        raise DataError(missing(data_set, data_dir, cache))
    marks = {file: fingerprint_of(path, cache) for file, path in paths.items()}
    if verify:
        for file, mark in marks.items():
            check_sum(data_set.file(file), mark, paths[file])
    return Sources(data_set.name, paths, marks, cache)


def missing(data_set: DataSet, data_dir: str | Path | None, cache: Path) -> str:
    """One line that says which file is not there, where it comes from and where it goes."""
    name = data_set.name
    for wanted in data_set.ways[0]:
        file = data_set.file(wanted)
        folders = roots(data_set, data_dir, cache, file)
        if not _search(wanted, folders):
            break
    others = " or ".join(" + ".join(way) for way in data_set.ways if wanted not in way)
    also = f" (or {others})" if others else ""
    how = f"Run `fedtempo data get {name}`, which downloads {file.url}" if file.url else f"Get it from {data_set.page}"
    return f"data set {name!r} needs {wanted}{also}, which is not in {folders[0]}. {how}, or put it into that folder."


def check_sum(file: File, mark: Fingerprint, path: Path) -> None:
    """Refuse a file that is not the published one."""
    if file.sha256 and mark.sha256 not in file.sha256:
        wanted = " or ".join(file.sha256)
        raise DataError(
            f"{path} must have the SHA-256 {wanted}. Got {mark.sha256}. The file was altered or is another version; "
            "verify=False reads it all the same."
        )


def fingerprint_of(path: Path, cache: Path) -> Fingerprint:
    """A file's size and SHA-256, remembered in the cache for as long as size and time of change stay the same."""
    state = path.stat()
    place = str(path.resolve())
    seen = [place, state.st_size, state.st_mtime_ns]
    note = cache / "fingerprints" / (hashlib.sha256(place.encode()).hexdigest()[:32] + ".json")
    try:
        known = json.loads(note.read_text(encoding="utf-8"))
        if known["seen"] == seen:
            return Fingerprint(state.st_size, str(known["sha256"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    mark = Fingerprint(state.st_size, sha256_of(path))
    write_atomically(note, json.dumps({"seen": seen, "sha256": mark.sha256}))
    return mark


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, read now."""
    state = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                state.update(chunk)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    return state.hexdigest()
