"""Settings written as `key=value` on a command line, and where they go in a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fedtempo.config import bounded_toml as toml
from fedtempo.errors import ConfigError, require


def pairs_of(texts: Iterable[str], what: str, form: str = "KEY=VALUE") -> dict[str, object]:
    """Keys and values of texts such as `lr=0.1`; a value is TOML, and anything that is not TOML is a string.

    `what` stands in the error for a text that is no pair. A dotted key names a field inside tables, see `put`.

    >>> pairs_of(["algorithm.lr=0.1", "name=fedavg"], "--set")
    {'algorithm.lr': 0.1, 'name': 'fedavg'}
    """
    pairs = {}
    for text in texts:
        key, equals, value = (piece.strip() for piece in text.partition("="))
        if not equals or not all(part.strip() for part in key.split(".")):
            raise ConfigError(f"{what} must be written {form}. Got {text!r}.")
        pairs[key] = _toml_value(value)
    return pairs


def put(values: dict[str, object], field: str, value: object, what: str) -> None:
    """Set a field such as `algorithm.lr` or `algorithm.lr.of.0.value`; tables on the way are made.

    >>> values = {"algorithm": {"name": "fedavg"}}
    >>> put(values, "algorithm.lr", 0.1, "--set")
    >>> values
    {'algorithm': {'name': 'fedavg', 'lr': 0.1}}
    """
    *parents, last = field.split(".")
    require(len(parents) < toml.DEEPEST, f"a field of {what}", f"of at most {toml.DEEPEST} parts", len(parents) + 1)
    where: Any = values
    for parent in parents:
        where = where[_index(where, parent, field, what)] if isinstance(where, list) else where.setdefault(parent, {})
        if not isinstance(where, (dict, list)):
            raise ConfigError(f"{what} {field} must lead into a table. Got {parent!r}, which is a value.")
    where[_index(where, last, field, what) if isinstance(where, list) else last] = value


def _index(entries: Sequence[object], key: str, field: str, what: str) -> int:
    if not key.isdecimal() or int(key) >= len(entries):
        raise ConfigError(f"{what} {field} must name an entry in [0, {len(entries)}) of the list. Got {key!r}.")
    return int(key)


def _toml_value(text: str) -> object:
    try:
        values = toml.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return values["value"] if len(values) == 1 else text  # a text of several lines could hold other keys
