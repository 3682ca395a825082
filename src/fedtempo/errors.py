"""Errors that a user can act on: each names the field, the rule and the value, and has its own exit code."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Any


class FedTempoError(Exception):
    """The parent of every error this library raises on purpose."""

    exit_code = 1


class ConfigError(FedTempoError, ValueError):
    """A setting is outside its rule."""

    exit_code = 3


class DataError(FedTempoError, ValueError):
    """The data cannot be trained on as they are."""

    exit_code = 4


class ModelError(FedTempoError, ValueError):
    """The model does not fit the data or the algorithm."""

    exit_code = 5


class OutputError(FedTempoError, OSError):
    """Results cannot be written where they were asked for."""

    exit_code = 6


class TrainingError(FedTempoError, RuntimeError):
    """Training had to stop: the model or a client's result is not usable."""

    exit_code = 7


def require(holds: bool, field: str, rule: str, value: object) -> None:
    """Raise `ConfigError` in the library's one sentence unless the rule holds."""
    if not holds:
        raise ConfigError(f"{field} must be {rule}. Got {value!r}.")


def is_number(value: Any) -> bool:
    """True for a finite int or float; a bool is not a number here."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_count(value: Any, minimum: int = 1) -> bool:
    """True for an int of at least `minimum`; a bool is not a count."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def unknown(kind: str, name: object, known: Iterable[str]) -> ConfigError:
    """The error for a name nobody knows, with the nearest name that somebody does."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(names)}."
    return ConfigError(f"{kind} {name!r} is not known.{hint}")
