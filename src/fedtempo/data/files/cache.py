"""The cache of decoded arrays: the first load writes .npy files, every later one maps them into memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.data.files.folders import Sources, sha256_of
from fedtempo.data.files.safe import exclusively
from fedtempo.errors import DataError, OutputError

LAYOUT = 1
"""Part of every key: raised when what a loader writes changes."""
_INDEX = "index.json"

Decode = Callable[[], Mapping[str, np.ndarray]]


def cached(sources: Sources, settings: Mapping[str, object], decode: Decode) -> dict[str, np.ndarray]:
    """The arrays that `decode` makes, read-only memory maps; decoded once for these bytes and these settings."""
    folder = sources.cache / "arrays" / sources.name / _key(sources, settings)
    if not (folder / _INDEX).is_file():
        _build(folder, sources, settings, decode)
    return _opened(folder)


def _key(sources: Sources, settings: Mapping[str, Any]) -> str:
    marks = [(name, mark.size, mark.sha256) for name, mark in sorted(sources.fingerprints.items())]
    return hashlib.sha256(repr((LAYOUT, sources.name, sorted(settings.items()), marks)).encode()).hexdigest()[:32]


def _build(folder: Path, sources: Sources, settings: Mapping[str, object], decode: Decode) -> None:
    with exclusively(folder):
        if (folder / _INDEX).is_file():
            return
        for leftover in (path for path in folder.parent.glob(f".{folder.name}.*") if path.is_dir()):
            shutil.rmtree(leftover, ignore_errors=True)  # what a killed process left
        made = decode()
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
        try:
            temporary.mkdir()
            _write(temporary, made, sources, settings)
            temporary.rename(folder)
        except OSError as error:
            raise OutputError(f"{folder} cannot be written: {error.strerror or error}.") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _write(folder: Path, made: Mapping[str, np.ndarray], sources: Sources, settings: Mapping[str, Any]) -> None:
    lines = {}
    for name, array in made.items():
        path = folder / f"{name}.npy"
        np.save(path, np.ascontiguousarray(array), allow_pickle=False)
        state = path.stat()
        lines[name] = {"size": state.st_size, "changed": state.st_mtime_ns, "sha256": sha256_of(path)}
    origin = {name: mark.sha256 for name, mark in sources.fingerprints.items()}
    index = {"arrays": lines, "settings": dict(settings), "sources": origin}
    (folder / _INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")


def _opened(folder: Path) -> dict[str, np.ndarray]:
    arrays = {}
    for name, line in _index(folder).items():
        path = folder / f"{name}.npy"
        _check(path, line)
        arrays[name] = np.load(path, mmap_mode="r", allow_pickle=False)
    return arrays


def _index(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        lines = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["arrays"]
        return {str(name): dict(line) for name, line in lines.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"the arrays in {folder} have no readable index. Delete the folder to decode again.") from None


def _check(path: Path, line: Mapping[str, Any]) -> None:
    """Refuse an altered array. Size and time of change tell at no cost; where they differ the bytes are hashed."""
    if path.is_file():
        state = path.stat()
        if (state.st_size, state.st_mtime_ns) == (line["size"], line["changed"]):
            return
    found = _sum(path)
    if found != line["sha256"]:
        raise DataError(
            f"the cached array {path} must have the SHA-256 {line['sha256']}. Got {found}. "
            f"Delete {path.parent} to decode it again."
        )


def _sum(path: Path) -> str:
    return sha256_of(path) if path.is_file() else "no file"


def verify_arrays(cache: Path, name: str) -> list[tuple[Path, str, str]]:
    """Every cached array of a data set with the SHA-256 it must have and the one it has now."""
    found = []
    for folder in sorted(path.parent for path in (cache / "arrays" / name).glob(f"*/{_INDEX}")):
        for array, line in _index(folder).items():
            path = folder / f"{array}.npy"
            found.append((path, str(line["sha256"]), _sum(path)))
    return found
