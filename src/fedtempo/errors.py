"""Errors that a user can act on: each names the field, the rule and the value, and has its own exit code."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np

LONGEST_VALUE = 200
"""Characters of a value that an error message shows."""


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


class WorkersLostError(TrainingError):
    """Too many workers died, or the cluster that they were on is gone; what was trained can be gone on with."""


class StoreError(FedTempoError, RuntimeError):
    """A stored run is damaged."""

    exit_code = 8


def require(holds: bool, field: str, rule: str, value: object) -> None:
    """Raise `ConfigError` in the library's one sentence unless the rule holds."""
    if not holds:
        raise wrong(field, rule, value)


def wrong(field: str, rule: str, value: object) -> ConfigError:
    """The error of `require`, to be raised where the check also narrows the value's type."""
    return ConfigError(f"{field} must be {rule}. Got {shown(value)}.")


def shown(value: object) -> str:
    """The value as it stands in an error message: one line, and not a long one."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python refuses to write out an int of thousands of digits
        return f"a very long {type(value).__name__}"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}... ({len(text)} characters)"


def first_line(error: BaseException) -> str:
    """What another library's error says, in one line."""
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def is_number(value: object) -> bool:
    """True for a finite int or float, Python's or numpy's; a bool is not a number here."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


def is_int(value: object) -> bool:
    """True for an int, Python's or numpy's; a bool is not an int here."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_count(value: object, minimum: int = 1) -> bool:
    """True for an int of at least `minimum`; a bool is not a count."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= minimum)


def python_numbers(value: Any) -> Any:
    """The value with Python's numbers in place of numpy's, also inside lists, tables and small frozen values.

    What was given is printed, stored and compared later, and torch takes some of numpy's numbers for arrays.

    >>> python_numbers([np.float64(0.5), {"steps": np.int64(3)}])
    [0.5, {'steps': 3}]
    """
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(python_numbers(entry) for entry in value)
    if type(value) is dict:
        return {python_numbers(key): python_numbers(entry) for key, entry in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        numpy = {name: entry.item() for name, entry in given.items() if isinstance(entry, np.generic)}
        return dataclasses.replace(value, **numpy) if numpy else value
    return value


P = ParamSpec("P")
R = TypeVar("R")


def takes_numbers(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: the function gets Python numbers where the caller gave numpy numbers."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*map(python_numbers, args), **{name: python_numbers(v) for name, v in kwargs.items()})

    return call


MOST_NAMES = 100
"""Names that an error lists."""


def unknown(kind: str, name: object, known: Iterable[str], now: str | None = None) -> ConfigError:
    """The error for an unknown name, with the nearest known one, or with what stands for it `now`."""
    if now is not None:
        return ConfigError(f"{kind} {shown(name)} is not known any more. {now}")
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1) if isinstance(name, str) else []
    more = f", and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    hint = f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(names[:MOST_NAMES]) or 'none'}{more}."
    return ConfigError(f"{kind} {shown(name)} is not known.{hint}")


def fits(value: object, kind: object) -> bool:
    """Whether a value is of an annotated type. A bool is not a number, NaN neither; a string is not a list.

    >>> fits([1, 2], Sequence[int]), fits("12", Sequence[int]), fits(True, float | None)
    (True, False, False)
    """
    if kind in PLAIN:
        return PLAIN[kind][1](value)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(fits(k, parts[0]) and fits(v, parts[1]) for k, v in value.items())
    if origin in LISTS:
        return isinstance(value, (list, tuple)) and _entries_fit(value, parts, origin is tuple)
    return isinstance(value, kind) if isinstance(kind, type) else True


def _entries_fit(values: Sequence[object], kinds: tuple[object, ...], by_place: bool) -> bool:
    """Whether all entries are of the one type, or each is of the type at its place."""
    if by_place and Ellipsis not in kinds:
        return len(values) == len(kinds) and all(map(fits, values, kinds))
    return all(fits(value, kinds[0]) for value in values)


def wording(kind: object, words: Mapping[object, str]) -> str:
    """An annotated type as the rule of an error message; `words` names the classes.

    >>> wording(Sequence[int] | None, {})
    'a list of ints'
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind in words or kind in PLAIN:
        return words[kind] if kind in words else PLAIN[kind][0]
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(wording(part, words) for part in parts if part is not types.NoneType))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is Mapping:
        return f"a table of {PLURALS.get(parts[1], 'values')}"
    if origin in LISTS:
        number = f"{len(parts)} " if origin is tuple and Ellipsis not in parts else ""
        return f"a list of {number}{PLURALS.get(parts[0], 'values')}"
    return f"a {getattr(kind, '__name__', str(kind))}"


def bound_arguments(
    name: str,
    signature: inspect.Signature,
    kinds: Mapping[str, object],
    call: tuple[Sequence[object], Mapping[str, object]],
    words: Mapping[object, str],
) -> dict[str, Any]:
    """The arguments of a call by name, each of its annotated type; one that is wrong or unknown is the error."""
    args, kwargs = call
    for given in kwargs:
        if given not in signature.parameters:
            raise unknown(f"{name}: setting", given, signature.parameters)
    try:
        bound: dict[str, Any] = python_numbers(dict(signature.bind(*args, **kwargs).arguments))
    except TypeError as error:
        raise ConfigError(f"{name}: {error}.") from None
    for field, value in bound.items():
        # Thousands of algorithms are made where papers' runs are listed, so the rule is worded only if it is broken.
        if not fits(value, kinds[field]) and not (callable(value) and _may_be_scheduled(kinds[field])):
            raise wrong(field, wording(kinds[field], words), value)
    return bound


def _may_be_scheduled(kind: object) -> bool:
    """Whether a schedule may stand here; then a function of `Now` may, too."""
    return any(getattr(part, "__name__", "") == "Schedule" for part in get_args(kind))


PLAIN: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    Any: ("anything", lambda value: True),
    types.NoneType: ("left out", lambda value: value is None),
    bool: ("true or false", lambda value: isinstance(value, (bool, np.bool_))),
    int: ("an int", is_int),
    float: ("a finite number", is_number),
    str: ("a string", lambda value: isinstance(value, str)),
}
LISTS = (tuple, list, Sequence, Iterable)
PLURALS: dict[Any, str] = {int: "ints", float: "finite numbers", str: "strings", bool: "truth values"}
