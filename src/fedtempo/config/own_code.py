"""A user's own code by name: `"package.module:name"` wherever an experiment file names a built-in.

One rule for every command. A name in an experiment file stands for a function, a class or a value of a module that lies
beside the file: whoever runs the file runs those modules. Any other module, one of the current folder or of an
installed package, counts only if the caller named it (`--allow-code MODULE`), and the standard library never does. So a
file alone, from whomever it comes, runs nothing but this library. A run folder has no code of its own: what its file
names must always be allowed by the caller, and nothing is imported from inside it.

Other packages can register names: an entry point in the group `fedtempo.algorithms` (or models, data, losses, metrics,
schedules, augmentations, optimizers, compressors) makes its name known in files, if the caller allows its module.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from fedtempo.backends.shipment import send_code_in
from fedtempo.errors import ConfigError, first_line, unknown

P = ParamSpec("P")
R = TypeVar("R")
GROUPS = {
    "algorithm": "fedtempo.algorithms",
    "model": "fedtempo.models",
    "data": "fedtempo.data",
    "loss": "fedtempo.losses",
    "metric": "fedtempo.metrics",
    "schedule": "fedtempo.schedules",
    "augment": "fedtempo.augmentations",
    "optimizer": "fedtempo.optimizers",
    "compressor": "fedtempo.compressors",
}
_OWN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_folders: list[Path] = []
"""Folders whose modules are imported by name, in the order in which they came to be."""


class Granted(NamedTuple):
    """What the caller of this process lets files name, for its workers too."""

    beside: tuple[Path, ...] = ()
    """Folders of experiment files that the caller named."""
    modules: tuple[str, ...] = ()
    """Modules that the caller named; those below them count as well."""


_granted = Granted()
_read: ContextVar[Path | None] = ContextVar("the folder of the experiment file that is read", default=None)
_stored: ContextVar[Path | None] = ContextVar(
    "the run folder that is read; its file has no modules beside", default=None
)


def is_own(name: object) -> bool:
    """Whether a name stands for a user's own code.

    >>> is_own("my.module:algorithm"), is_own("fedavg")
    (True, False)
    """
    return isinstance(name, str) and ":" in name


def own_names(values: object) -> set[str]:
    """What reads like a name of own code in a file's values, at whatever depth."""
    return {text for text in _texts(values) if _OWN.fullmatch(text) is not None}


def _texts(values: object) -> set[str]:
    if isinstance(values, Mapping):
        return _texts(list(values.values()))
    if isinstance(values, list):
        return set().union(*map(_texts, values))
    return {values} if isinstance(values, str) else set()


def allow(modules: Iterable[str], beside: Path | None = None) -> None:
    """Let files name these modules, and those that lie in this folder, which is that of an experiment file."""
    global _granted  # noqa: PLW0603 - what a caller allows holds for the process
    folders = () if beside is None else (beside.resolve(),)
    _granted = Granted(
        *(tuple(dict.fromkeys(all_)) for all_ in ((*_granted.beside, *folders), (*_granted.modules, *modules)))
    )


@contextmanager
def file_of(folder: Path, modules: Iterable[str]) -> Iterator[None]:
    """Inside, a file of this folder is read; modules beside it may be named from now on, and these."""
    allow(modules, folder)
    token = _read.set(folder.resolve())
    try:
        yield
    finally:
        _read.reset(token)


def allow_named(values: object) -> None:
    """Let a file name what it names: for programs that were given the file together with its code."""
    short = {entry.name: entry.module for group in GROUPS.values() for entry in entry_points(group=group)}
    allow(
        [name.partition(":")[0] for name in own_names(values)]
        + [short[text] for text in _texts(values) if text in short]
    )


def granting(perform: Callable[P, R]) -> Callable[P, R]:
    """The function for workers that are new processes: it first allows there what the caller allows here."""
    return functools.partial(_granted_here, _granted, perform)


def _granted_here(granted: Granted, perform: Callable[P, R], /, *arguments: P.args, **settings: P.kwargs) -> R:
    allow(granted.modules)
    for folder in granted.beside:
        allow((), folder)
    return perform(*arguments, **settings)


@contextmanager
def stored_run(folder: Path, modules: Collection[str]) -> Iterator[None]:
    """Inside, a run folder's file is read: of its own code only these modules count, none from inside the folder."""
    place = folder.resolve()
    token = _stored.set(place)
    allow(modules)
    if modules:
        # What the allowed code imports, now or later, must not come out of the folder either.
        sys.path[:] = [path for path in sys.path if not _inside(Path(path), place)]
    try:
        yield
    finally:
        _stored.reset(token)


def make_importable(folder: Path) -> None:
    """Modules in this folder can be named, as those beside a script can be imported by it."""
    place = folder.resolve()
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
    if place not in _folders:
        _folders.append(place)


def code_folders() -> list[Path]:
    """The folders whose modules can be named, for processes that are started with their own search path."""
    return list(_folders)


def find(field: str, name: Any, known: Mapping[str, Any], key: str = "name", kind: str | None = None) -> Any:
    """What a name stands for: a built-in, what a package has registered, or a user's own."""
    if isinstance(name, str) and name in known:
        return known[name]
    if is_own(name):
        return _loaded(field, name)
    registered = list(_registered(kind or field.partition(".")[0]))
    for entry in registered:
        if entry.name == name:
            return _loaded(field, f"{entry.module}:{entry.attr}", name)
    raise unknown(f"{field}.{key}" if key else field, name, [*known, *(entry.name for entry in registered)])


def _registered(kind: str) -> Iterable[EntryPoint]:
    group = GROUPS.get(kind)
    return () if group is None else entry_points(group=group)


def _loaded(field: str, name: str, shown: str | None = None) -> Any:
    module, _, attribute = name.partition(":")
    label = repr(shown or name)
    if _OWN.fullmatch(name) is None:
        raise ConfigError(f"{field} must name own code as 'package.module:name'. Got {label}.")
    _check_allowed(field, module, label)
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # importing runs the user's code, which may raise anything
        raise ConfigError(
            f"{field} {label} cannot be imported: {type(error).__name__}: {first_line(error)}."
        ) from error
    _send_along(module)
    for part in attribute.split("."):
        if not hasattr(found, part) or part.startswith("__"):
            raise unknown(f"{field}: name in {module}", part, [n for n in vars(found) if not n.startswith("_")])
        found = getattr(found, part)
        if inspect.ismodule(found):
            raise ConfigError(
                f"{field} {label} must be a function, a class or a value of {module}. Got a module in it."
            )
    # A module that imports `os` must not make a name of ours of everything in `os`.
    home = getattr(found, "__module__", None) if inspect.isroutine(found) or inspect.isclass(found) else module
    if not isinstance(home, str):  # a function in C does not say whose it is
        if not _is_named(module):
            raise ConfigError(f"{field} {label} must be a function, a class or a value of {module}. Got {found!r}.")
    elif home.partition(".")[0] != module.partition(".")[0]:
        _check_allowed(field, home, label)
    return found


def _is_named(module: str) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in _granted.modules)


def _check_allowed(field: str, module: str, label: str) -> None:
    """The rule: beside the file, or named by the caller; never the standard library, or inside a run folder."""
    top, stored = module.partition(".")[0], _stored.get()
    if top in sys.stdlib_module_names or top == "__main__":
        raise ConfigError(f"{field} must not name a module of the standard library. Got {label}.")
    named = _is_named(module)
    beside = None if stored is not None else _folder_beside(field, top, label)
    if not named and beside is None:
        why = "which is not beside the file" if stored is None else "and a stored run may come from somebody else"
        raise ConfigError(f"{field} names code of its own, {label}, {why}. If you trust it, add --allow-code {module}.")
    if beside is not None:
        make_importable(beside)
    elif not _origins(top) and _has(Path.cwd(), top) and not _inside(Path.cwd(), stored):
        make_importable(Path.cwd())
    if beside is not None and not named and not any(_inside(place, beside) for place in _origins(top)):
        rule = f"the module beside the file, and another {top!r} is loaded: give yours another name"
        raise ConfigError(f"{field} {label} must mean {rule}. Got {beside}.")
    if stored is not None:
        parts = module.split(".")
        # Finding a module imports the packages above it, so these are looked at first.
        if any(_inside(place, stored) for end in range(len(parts)) for place in _origins(".".join(parts[: end + 1]))):
            raise ConfigError(f"{field} {label} must not lie inside the stored run. Got {stored}.")


def _folder_beside(field: str, top: str, label: str) -> Path | None:
    """The folder of an experiment file that holds the module."""
    own = _read.get()
    if own is not None and _has(own, top):
        other = next((folder for folder in _folders if folder != own and _has(folder, top)), None)
        if other is not None:
            raise ConfigError(f"{field} {label} must mean one module. Got {top!r} in {other} and in {own}.")
        return own
    known = [*(folder for folder in _folders if folder in _granted.beside), *reversed(_granted.beside)]
    return next((folder for folder in known if _has(folder, top)), None)


def _has(folder: Path, top: str) -> bool:
    return (folder / f"{top}.py").is_file() or (folder / top).is_dir()


def _origins(module: str) -> list[Path]:
    """Where a module would be, or was, imported from; the packages above it are imported."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # importing a package runs the user's code; the import itself says what is wrong with it
        return []
    found = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
    return [Path(place) for place in found if place is not None]


def _send_along(module: str) -> None:
    """Workers on other machines get the code of the module's folder by value."""
    top = sys.modules[module.partition(".")[0]]
    file = getattr(top, "__file__", None)
    places = [Path(file)] if file else [Path(place) / "__init__.py" for place in getattr(top, "__path__", ())]
    for place in places:
        send_code_in(place.parent.parent if place.name == "__init__.py" else place.parent)


def _inside(place: Path, folder: Path | None) -> bool:
    try:
        return folder is not None and place.resolve().is_relative_to(folder)
    except (OSError, ValueError, RuntimeError):
        return False
