"""The key of a stored run: a hash of what was run, and of nothing that says how the code is written.

It is made of the study, the contestant, the settings as plain data, the seed, and the number of the study's measure. A
setting that has its default is left out, so that a new field with a default changes no key. Whoever changes what a
study measures raises `Reproduction.measure`; then its stored runs are run again.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from fedtempo.algorithms import Algorithm
from fedtempo.errors import ConfigError

if TYPE_CHECKING:
    from fedtempo.papers.framework.definitions import PaperRun

ADDRESS = " at 0x"
"""What Python prints of an object that has no words of its own; it differs in every process."""


def key_of(study: str, run: PaperRun, seed: int, measure: int = 1) -> str:
    """The key of one contestant's run with one seed."""
    parts = {"study": study, "contestant": run.label, "run": run.asked(), "seed": seed, "measure": measure}
    text = json.dumps(plain(parts), sort_keys=True)
    if ADDRESS in text:
        raise ConfigError(f"{study}, {run.label!r}: a run's settings must be values that print as what they are.")
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def plain(value: object) -> object:
    """A value as plain data: numbers, strings, lists, and tables with a `name` for what has settings.

    >>> plain(functools.partial(round, ndigits=2))
    {'name': 'round', 'ndigits': 2}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    table = _table(value)
    return repr(value) if table is None else {str(name): plain(one) for name, one in table.items()}


def _table(value: Any) -> Mapping[Any, object] | None:
    """Settings by name; None for schedules, divisions and devices, which print as the call that makes them."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Algorithm):
        return {"name": value.name, **value.settings}
    if isinstance(value, functools.partial):
        places = {f"argument {place}": one for place, one in enumerate(value.args)}
        return {"name": _name(value.func), **places, **value.keywords}
    if inspect.isroutine(value):
        return {"name": _name(value)}
    if is_dataclass(value) and repr(value).startswith(f"{type(value).__qualname__}({fields(value)[0].name}="):
        told = {one.name: getattr(value, one.name) for one in fields(value) if not _is_default(value, one)}
        return {"name": type(value).__name__, "fields": told}
    return None


def _name(function: Any) -> str:
    name = str(getattr(function, "__name__", function))
    return f"{name}{ADDRESS}" if name == "<lambda>" else name  # two of them would have one name


def _is_default(value: Any, one: Field[Any]) -> bool:
    default = one.default_factory() if one.default_factory is not MISSING else one.default
    return default is not MISSING and bool(getattr(value, one.name) == default)
