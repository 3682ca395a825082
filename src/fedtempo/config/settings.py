"""A name and its settings become a value: both are checked first, and errors name the place in the file."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from torch import nn

from fedtempo.algorithms import Algorithm
from fedtempo.client.compression import Compressor
from fedtempo.client.optimizers import Optimizer
from fedtempo.config.own_code import find
from fedtempo.errors import ConfigError, FedTempoError, first_line, fits, require, unknown, wording
from fedtempo.params import Selector
from fedtempo.schedules import Schedule

Made = TypeVar("Made")
WORDS: dict[Any, str] = {
    Schedule: '{ schedule = "...", ... }',
    Selector: '{ submodule = "..." } or { matching = "..." }',
    Optimizer: '{ name = "adamw", ... }',
    Compressor: '{ name = "top_k", ... }',
    Algorithm: "a table with a name",
    Path: "a path",
}
"""How the values that TOML has no type for are written in a file."""
RENAMED: dict[str, dict[str, str]] = {
    "reptile": {"outer_lr": "It is server_lr now."},
    "fomaml": {"outer_lr": "It is server_lr now."},
    "fedrep": {"body_lr": "lr is the body's rate; the head's is head_lr."},
    "pflego": {"lr": "It is head_lr now."},
}
"""Settings of earlier releases, by algorithm, and what stands for them."""


def make(
    field: str,
    name: object,
    known: Mapping[str, object],
    settings: Mapping[str, object],
    key: str = "name",
    kind: str | None = None,
) -> Any:
    """Call the function a name stands for; what is wrong is named by its place in the file."""
    function = checked(field, name, known, settings, key, kind)
    if is_value(function):
        return function
    with at(field, name, inspect.signature(function).parameters):
        return function(**settings)


def made_as(
    field: str,
    name: object,
    known: Mapping[str, object],
    settings: Mapping[str, object],
    wanted: type[Made] | tuple[type[Made], ...],
    what: str,
    kind: str | None = None,
) -> Made:
    """Like `make`, for what must come out as one of these types."""
    value = make(field, name, known, settings, kind=kind)
    if not isinstance(value, wanted):
        raise ConfigError(f"{field} {name!r} must return {what}. Got a {type(value).__name__}.")
    return value


def function_or_made(
    field: str, name: object, known: Mapping[str, object], settings: Mapping[str, object], kind: str, takes: int
) -> Any:
    """A function of `takes` arguments with its settings bound, or what a name makes when called with its settings.

    What still lacks `takes` arguments is meant itself, such as a loss of (outputs, targets); what lacks none is called.
    """
    found = find(field, name, known, "", kind)
    if is_value(found) or isinstance(found, type) or name in known:
        return make(field, name, known, settings, "", kind)
    lacks = [p for p in not_given(inspect.signature(found).parameters, settings) if p.kind is not p.KEYWORD_ONLY]
    if len(lacks) > takes:
        _check_known(field, name, found, settings)
        # Which of the two is meant cannot be told, so the line says what either needs.
        passed, needed = (", ".join(p.name for p in some) for some in (lacks[:takes], lacks[takes:]))
        raise ConfigError(f"{field} {name!r} must be given {needed}, and {passed} if it makes a function. Got neither.")
    if len(lacks) != takes:
        return make(field, name, known, settings, "", kind)
    _check_known(field, name, found, settings)
    _check_types(field, found, settings)
    if not settings:
        return found
    bound = functools.partial(found, **settings)
    bound.__name__ = getattr(found, "__name__", type(found).__name__)  # type: ignore[attr-defined]
    return bound


def checked(
    field: str,
    name: object,
    known: Mapping[str, object],
    settings: Mapping[str, object],
    key: str = "name",
    kind: str | None = None,
) -> Any:
    """What the name stands for. Every setting must be one of its parameters and of its type, and none may be missing.

    A value of the user's own takes no settings.
    """
    found = find(field, name, known, key, kind)
    if is_value(found):
        require(not settings, f"{field} {name!r}", f"given no settings: it is a {type(found).__name__}", [*settings])
        return found
    _check_known(field, name, found, settings)
    _check_types(field, found, settings)
    lacks = not_given(inspect.signature(found).parameters, settings)
    if lacks:
        raise ConfigError(f"{field}.{lacks[0].name} must be given for {name!r}. Got nothing.")
    return found


def is_value(found: object) -> bool:
    """Whether a name stands for a value that is there already, and not for something that makes one."""
    return not callable(found) or isinstance(found, nn.Module)


def not_given(parameters: Mapping[str, inspect.Parameter], settings: Iterable[str]) -> list[inspect.Parameter]:
    """The parameters that have no default and are not given."""
    given = set(settings)
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in parameters.values() if p.default is p.empty and p.kind not in several and p.name not in given]


def _check_known(field: str, name: object, function: Callable[..., Any], settings: Iterable[str]) -> None:
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for setting in settings:
        if setting not in parameters:
            raise unknown(f"{field} {name!r}: setting", setting, parameters, RENAMED.get(str(name), {}).get(setting))


def _check_types(field: str, function: Callable[..., Any], settings: Mapping[str, object]) -> None:
    try:
        kinds = get_type_hints(function.__init__ if isinstance(function, type) else function)  # type: ignore[misc]
    except Exception:  # a user's annotations may name what is not there at run time
        return
    check_types(field, kinds, settings)


def check_types(field: str, kinds: Mapping[str, object], settings: Mapping[str, object]) -> None:
    """Every setting is of its annotated type."""
    for setting, value in settings.items():
        kind = kinds.get(setting, Any)
        require(fits(value, kind), f"{field}.{setting}", wording(kind, WORDS), value)


@contextmanager
def at(field: str, name: object, known: Iterable[str]) -> Iterator[None]:
    """Errors from in here name the setting by its place in the file, whoever raised them."""
    try:
        yield
    except ConfigError as error:
        place = f"{field}." if str(error).split(" ", 1)[0] in known else f"{field} {name!r}: "
        raise ConfigError(f"{place}{error}") from error
    except FedTempoError:
        raise
    except (TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, RuntimeError) as error:
        raise ConfigError(f"{field} {name!r} cannot be made from these settings: {first_line(error)}.") from error
