"""Devices from a CSV file: measured traits, one device a row."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from fedtempo.devices.fleet import Devices, uniforms
from fedtempo.devices.traits import USUAL, Traits, check_trait, traits_of
from fedtempo.errors import ConfigError, DataError, first_line, unknown
from fedtempo.support.room import require_room

CLIENT = "client"


def trace(path: str | Path) -> Devices:
    """Devices from a CSV file whose header names traits; with a column `client` each row is that client's device.

    Without that column every client draws a row by its number, so a trace of a thousand devices serves a million
    clients. Memory is that of the file's numbers.
    """
    names, rows = _read(Path(path))
    columns = {name: rows[:, place] for place, name in enumerate(names)}
    numbers = columns.pop(CLIENT, None)
    for name, values in columns.items():
        check_trait(name, values, str(path))
    order = None if numbers is None else _clients(numbers, path)
    known = None if numbers is None or order is None else numbers[order].astype(np.int64)

    def draw(seed: int, clients: np.ndarray) -> Traits:
        if known is None or order is None:
            (drawn,) = uniforms(seed, clients, 1, "row")
            places = (drawn * len(rows)).astype(np.int64)
        else:
            found = np.minimum(np.searchsorted(known, clients), len(known) - 1)
            missing = clients[known[found] != clients]
            if len(missing):
                raise DataError(f"{path} must have a row for every client. Got none for client {missing[0]}.")
            places = order[found]
        return traits_of({name: values[places] for name, values in columns.items()}, len(clients))

    has_hours = bool({"opens", "closes"} & set(names))
    return Devices("trace", {"path": str(path)}, draw, has_hours=has_hours, content=(tuple(names), rows))


def _read(path: Path) -> tuple[list[str], np.ndarray]:
    if not path.expanduser().is_file():  # a device would be read without an end
        raise ConfigError(f"path must be a CSV file of devices. Got {path}, which is no file.")
    require_room(30.0 * path.expanduser().stat().st_size, path.name)
    try:
        with path.expanduser().open(encoding="utf-8", newline="") as file:
            names = [name.strip() for name in next(csv.reader(file), [])]
            _check_names(names, path)
            rows = np.loadtxt(file, delimiter=",", dtype=np.float64, ndmin=2)
    except OSError as error:
        raise ConfigError(f"path must be a CSV file of devices. Got {path}: {error.strerror or error}.") from None
    except ValueError as error:
        raise DataError(f"{path} must be a table of numbers, one device a row: {first_line(error)}.") from None
    if not len(rows) or rows.shape[1] != len(names):
        raise DataError(f"{path} must have rows of {len(names)} numbers. Got {len(rows)} rows of {rows.shape[1]}.")
    return names, rows


def _check_names(names: list[str], path: Path) -> None:
    if len(set(names)) != len(names) or not set(names) - {CLIENT}:
        raise DataError(f"{path} must begin with the names of its columns, each once. Got {names}.")
    for name in names:
        if name not in (*USUAL, CLIENT):
            raise unknown(f"{path}: column", name, [*USUAL, CLIENT])


def _clients(numbers: np.ndarray, path: str | Path) -> np.ndarray:
    """The rows in the order of their clients."""
    whole = np.isfinite(numbers).all() and bool((numbers == np.round(numbers)).all()) and bool((numbers >= 0).all())
    if not whole or len(np.unique(numbers)) != len(numbers):
        raise DataError(f"{path}: client must hold different whole numbers from 0 up. Got others.")
    return np.argsort(numbers, kind="stable")
