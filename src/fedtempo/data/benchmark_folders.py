"""Folders that PFLlib and LEAF write: clients with their training and test rows, read without running anything."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.data.files.archives import read_zip
from fedtempo.data.files.safe import read_text
from fedtempo.data.files.serialised import array_of, contents_of, read_serialised
from fedtempo.data.own_clients import Columns, as_columns
from fedtempo.data.parts import TEST, TRAIN
from fedtempo.data.table import Table
from fedtempo.errors import DataError

Rows = list[tuple[str, int, Columns]]
"""A client's name, a part, and its rows."""
_PARTS = {"train": TRAIN, "test": TEST}


def from_pfllib(path: str | Path) -> Table:
    """The folder that PFLlib's `generate_X.py` writes: `train/0.npz`, `test/0.npz` and so on, a client each.

    Clients keep their numbers as names, and rows their part: `table.split(validation=0.1)` cuts a validation part out
    of the training rows. The files hold pickles; they are read as data, and nothing that they name is called.
    """
    folder = _folder(path, "train")
    rows: Rows = []
    for part, number in _PARTS.items():
        files = [file for file in (folder / part).glob("*.npz") if file.stem.isdecimal()]
        rows += [(file.stem, number, _pfllib_client(file)) for file in sorted(files, key=lambda file: int(file.stem))]
    if not rows:
        raise DataError(f"{folder.name}/train must hold files such as 0.npz, one per client. Got none.")
    return _table(folder.name, rows, by=int)


def from_leaf(path: str | Path) -> Table:
    """A folder of LEAF: JSON files in `train` and `test`, with `users` and each user's x and y as numbers.

    Users keep their names and rows their part: `table.split(validation=0.1)` cuts a validation part out of the
    training rows. For LEAF's texts, such as Shakespeare, numbers have to be made first: `ft.data.load("shakespeare")`.
    """
    folder = _folder(path, "train")
    rows: Rows = []
    for part, number in _PARTS.items():
        for file in sorted((folder / part).glob("*.json")):
            rows += [(user, number, columns) for user, columns in _leaf_users(file)]
    if not rows:
        raise DataError(f"{folder.name}/train must hold LEAF's JSON files. Got none.")
    return _table(folder.name, rows, by=str)


def _folder(path: str | Path, needs: str) -> Path:
    folder = Path(path).expanduser()
    if not (folder / needs).is_dir():
        raise DataError(f"path must be a folder with the folders train and test. Got {folder.name!r} without {needs}.")
    return folder


def _pfllib_client(file: Path) -> Columns:
    members = read_zip(file, lambda name: name == "data.npy")
    if not members:
        raise DataError(f"{file.parent.name}/{file.name} must hold the array 'data', as PFLlib writes it. Got none.")
    name = f"{file.parent.name}/{file.name}"
    return as_columns(read_serialised(_object(members[0][1], name), name, _pfllib_columns, "PFLlib's"), name)


def _object(content: bytes, name: str) -> bytes:
    """The serialised object behind the header of an npy file."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    except (ValueError, EOFError, SyntaxError, TypeError) as error:
        raise DataError(f"{name} is not one of PFLlib's files: {error}.") from None
    if shape != () or dtype.hasobject is not True:
        raise DataError(f"{name} must hold one dict of x and y, as PFLlib writes it. Got an array of {dtype}.")
    return content[stream.tell() :]


def _pfllib_columns(value: Any) -> dict[str, Any]:
    (found,) = contents_of(value)
    if not isinstance(found, dict):
        raise ValueError("it must hold a dict")
    columns = {str(name): array_of(column) for name, column in found.items()}
    if not {"x", "y"} <= set(columns):
        raise ValueError(f"it must hold x and y, and holds {sorted(columns)}")
    return columns


def _leaf_users(file: Path) -> Iterable[tuple[str, Columns]]:
    name = f"{file.parent.name}/{file.name}"
    try:
        content = json.loads(read_text(file.read_bytes(), name))
        users = {str(user): content["user_data"][user] for user in content["users"]}
        pairs = {user: (np.asarray(rows["x"]), np.asarray(rows["y"])) for user, rows in users.items()}
        return [(user, as_columns(pair, user)) for user, pair in pairs.items()]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{name} is not a LEAF file: {type(error).__name__} {error}.") from None


def _table(name: str, rows: Rows, by: Callable[[str], Any]) -> Table:
    names = sorted({client for client, _, _ in rows}, key=by)
    number = {client: place for place, client in enumerate(names)}
    lengths = [len(next(iter(columns.values()))) for _, _, columns in rows]
    first = rows[0][2]
    for client, _, columns in rows:
        shapes = {column: values.shape[1:] for column, values in columns.items()}
        if shapes != {column: values.shape[1:] for column, values in first.items()}:
            raise DataError(f"client {client} must have the columns and shapes of the others. Got {shapes}.")
    return Table(
        name,
        {column: np.concatenate([columns[column] for _, _, columns in rows]) for column in first},
        keys=np.repeat([number[client] for client, _, _ in rows], lengths).astype(np.int64),
        parts=np.repeat([part for _, part, _ in rows], lengths).astype(np.int8),
        key_names=names,
        own_parts=True,
    )
