"""How a value is shown. The core only asks; `fedtempo.report` registers an answer for each kind of value.

So a schedule is a picture in a notebook and `Result.table()` makes a table, though the core never imports the report.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

Way = TypeVar("Way", bound=Callable[..., Any])
_WAYS: dict[tuple[type, str], Callable[..., Any]] = {}
_PROVIDERS: list[str] = []


def shows(kind: type, way: str = "html") -> Callable[[Way], Way]:
    """A decorator: the function shows values of this kind in this way."""

    def register(function: Way) -> Way:
        _WAYS[kind, way] = function
        return function

    return register


def shown_by(module: str) -> None:
    """Name a module that registers ways to show values. It is imported when the first value is shown, not before."""
    _PROVIDERS.append(module)


def show(value: object, way: str, *arguments: object) -> Any:
    """The value shown in this way."""
    while (type(value), way) not in _WAYS and _PROVIDERS:
        import_module(_PROVIDERS.pop())
    return _WAYS[type(value), way](value, *arguments)


def html_of(value: object) -> str:
    """The value as a piece of HTML, for notebooks."""
    return str(show(value, "html"))
