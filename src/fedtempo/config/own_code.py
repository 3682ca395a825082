"""A user's own code by name: `"package.module:name"` wherever an experiment file names a built-in.

An experiment file with such names runs that code: treat the file like a script. Nothing is imported that the file does
not name. A stored run folder is different, since it may come from somebody else. Commands that read one import nothing
from inside it, and import what it names only where the command line allows it (`--allow-code package.module`).

Other packages can register names: an entry point in the group `fedtempo.algorithms` (or models, data, losses, metrics,
schedules, augmentations) makes its name known in files, with the same rule for stored folders.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from fedtempo.errors import ConfigError, first_line, unknown

Makers = Mapping[str, Callable[..., Any]]
GROUPS = {
    "algorithm": "fedtempo.algorithms",
    "model": "fedtempo.models",
    "data": "fedtempo.data",
    "loss": "fedtempo.losses",
    "metric": "fedtempo.metrics",
    "schedule": "fedtempo.schedules",
    "augment": "fedtempo.augmentations",
}
_allowed: ContextVar[Collection[str] | None] = ContextVar("modules that may be imported; None for all", default=None)
_imported: set[str] = set()


def is_own(name: object) -> bool:
    """Whether a name stands for a user's own code.

    >>> is_own("my.module:algorithm"), is_own("fedavg")
    (True, False)
    """
    return isinstance(name, str) and ":" in name


@contextmanager
def allowing(modules: Collection[str] | None) -> Iterator[None]:
    """Inside, only these modules (and modules below them) may be imported by name; None allows all."""
    token = _allowed.set(modules)
    try:
        yield
    finally:
        _allowed.reset(token)


def make_importable(folder: Path) -> None:
    """Modules beside an experiment file can be named in it."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)


def find(field: str, name: Any, known: Makers, key: str = "name", kind: str | None = None) -> Callable[..., Any]:
    """The function that a name stands for: a built-in, one that a package has registered, or a user's own."""
    if isinstance(name, str) and name in known:
        return known[name]
    if is_own(name):
        return _loaded(field, name)
    for entry in _registered(kind or field.partition(".")[0]):
        if entry.name == name:
            return _loaded(field, f"{entry.module}:{entry.attr}", name)
    label = f"{field}.{key}" if key else field
    raise unknown(label, name, [*known, *(entry.name for entry in _registered(kind or field.partition(".")[0]))])


def own_modules() -> frozenset[str]:
    """Modules that were imported by name; workers on other machines get them by value."""
    return frozenset(_imported)


def _registered(kind: str) -> Iterable[EntryPoint]:
    group = GROUPS.get(kind)
    return () if group is None else entry_points(group=group)


def _loaded(field: str, name: str, shown: str | None = None) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    label = repr(shown or name)
    if not module or not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise ConfigError(f"{field} must name own code as 'package.module:name'. Got {label}.")
    allowed = _allowed.get()
    if allowed is not None and not any(module == each or module.startswith(f"{each}.") for each in allowed):
        raise ConfigError(
            f"{field} names code of its own, {label}, and a stored run may come from somebody else. If you trust it, "
            f"add --allow-code {module}."
        )
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # importing runs the user's code, which may raise anything
        raise ConfigError(
            f"{field} {label} cannot be imported: {type(error).__name__}: {first_line(error)}."
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise unknown(f"{field}: {module} has no name", part, [n for n in vars(found) if not n.startswith("_")])
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{field} must name a function or a class. Got {label}, a {type(found).__name__}.")
    _imported.add(module)
    made: Callable[..., Any] = found
    return made
