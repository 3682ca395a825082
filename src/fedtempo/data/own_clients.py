"""Clients given one by one: your own arrays and tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from fedtempo.data.layout import completed_parts, drawn_parts, layout
from fedtempo.data.parts import PARTS
from fedtempo.errors import DataError, is_count, is_number, require, shown

ClientData = tuple[Any, ...] | Mapping[str, Any]
Columns = dict[str, np.ndarray]


def as_one_table(
    clients: Sequence[ClientData],
    validation: Sequence[ClientData] | float,
    test: Sequence[ClientData] | float,
    seed: int,
) -> tuple[Columns, np.ndarray, np.ndarray | None]:
    """The clients' columns put together, with their bounds and order; see `FederatedData.from_clients`."""
    require(is_count(seed, 0), "seed", "an int >= 0", seed)
    given = {"train": _listed("clients", clients, None)}
    fractions: dict[str, float] = {}
    for part, value in (("validation", validation), ("test", test)):
        if is_number(value):
            fractions[part] = float(value)  # type: ignore[arg-type]
        else:
            given[part] = _listed(part, value, len(given["train"]))
    pieces = [
        (client, PARTS[part], as_columns(values[client], f"client {client}"))
        for client in range(len(given["train"]))
        for part, values in given.items()
    ]
    lengths = [len(next(iter(columns.values()))) for _, _, columns in pieces]
    # An empty list has neither a type nor a shape of its own: numpy takes it for floats, and labels would be numbers.
    filled = [columns for (_, _, columns), rows in zip(pieces, lengths, strict=True) if rows] or [pieces[0][2]]
    _check_alike(filled[0], [columns for _, _, columns in pieces])
    owner = np.repeat([client for client, _, _ in pieces], lengths).astype(np.int64)
    part_of = np.repeat([part for _, part, _ in pieces], lengths).astype(np.int8)
    if any(fractions.values()) and len(given) == 1:
        part_of = drawn_parts(owner, len(given["train"]), fractions["validation"], fractions["test"], seed)
    elif any(fractions.values()):  # one part is given, and the other is cut out of the training rows
        shares = fractions.get("validation"), fractions.get("test")
        part_of = completed_parts(owner, part_of, len(given["train"]), shares[0], shares[1], seed)
    stacked = {name: np.concatenate([columns[name] for columns in filled]) for name in filled[0]}
    return stacked, *layout(owner, part_of, len(given["train"]))


def _listed(name: str, values: Any, count: int | None) -> list[ClientData]:
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__"):
        how = ": give list(clients.values()), and names=list(clients)" if isinstance(values, Mapping) else ""
        raise DataError(f"{name} must be a list with one entry per client. Got {type(values).__name__}{how}.")
    if not len(values):
        raise DataError(f"{name} must hold at least one client. Got none.")
    if count is not None and len(values) != count:
        raise DataError(f"{name} must have one entry per client, {count}. Got {len(values)}.")
    return list(values)


def as_columns(client: ClientData, name: str = "a client") -> Columns:
    """One client's `(x, y)` or dict of columns as arrays of equal length."""
    pair = isinstance(client, (tuple, list)) and len(client) in (1, 2)
    if not pair and not (isinstance(client, Mapping) and client):
        found = f"{type(client).__name__}{_other_door(client)}"
        raise DataError(f"the data of {name} must be (x, y) or a dict of columns. Got {found}.")
    pairs = client if isinstance(client, Mapping) else dict(zip(("x", "y"), client, strict=False))
    columns = {str(column): _array(values, f"{name}, column {column!r},") for column, values in pairs.items()}
    lengths = {column: len(values) for column, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise DataError(f"the columns of {name} must have equal lengths. Got {lengths}.")
    return columns


def _other_door(client: object) -> str:
    """What takes such a client, where something does."""
    if isinstance(client, Dataset):
        return ": ft.data.from_torch(ConcatDataset(sets), owner) takes data sets and the client of each row"
    frames = ": ft.data.from_frame takes one frame of all clients, with a column that names each row's"
    return frames if hasattr(client, "columns") else ""


def array_of_tensor(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's numbers; numpy has no bfloat16, all of which are numbers of float32 too."""
    plain = tensor.detach().cpu()
    return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())


def _array(values: object, name: str) -> np.ndarray:
    try:
        array = array_of_tensor(values) if isinstance(values, torch.Tensor) else np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers in an array or tensor: {error}.") from None
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise DataError(f"{name} must have a number everywhere. Got a masked array: fill its gaps by .filled(value).")
    if array.dtype.kind in "UO" and array.size and array.ndim and all(isinstance(value, str) for value in array.flat):
        how = "number the texts of all clients at once, by np.unique(texts, return_inverse=True)"
        raise DataError(
            f"{name} must be numbers in an array or tensor. Got text, such as {shown(str(array.flat[0]))}: {how}."
        )
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise DataError(f"{name} must be numbers in an array or tensor. Got {array.dtype} of {array.ndim} dimensions.")
    return array


def _check_alike(first: Columns, pieces: list[Columns]) -> None:
    for piece in pieces:
        if set(piece) != set(first):
            raise DataError(f"all clients must have the same columns, {sorted(first)}. Got {sorted(piece)}.")
        for name, column in piece.items():
            if column.shape != (0,) and column.shape[1:] != first[name].shape[1:]:
                shapes = f"{first[name].shape[1:]} and {column.shape[1:]}"
                raise DataError(f"column {name!r} must have rows of one shape in all clients. Got {shapes}.")
