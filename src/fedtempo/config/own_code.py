"""A user's own code by name: `"package.module:name"` wherever an experiment file names a built-in.

An experiment file with such names runs that code: treat the file like a script. Modules beside the file can be named
in it, and nothing is imported that it does not name. A stored run folder is different, since it may come from somebody
else. Commands that read one import nothing from inside it, and import what it names only where the command line allows
it (`--allow-code package.module`).

Other packages can register names: an entry point in the group `fedtempo.algorithms` (or models, data, losses, metrics,
schedules, augmentations, optimizers, compressors) makes its name known in files, with the same rule for stored folders.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

from fedtempo.backends.shipment import send_code_in
from fedtempo.errors import ConfigError, first_line, unknown

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


class _Rule(NamedTuple):
    """What may be imported while a stored folder is read."""

    modules: Collection[str]
    folder: Path


_rule: ContextVar[_Rule | None] = ContextVar("what may be imported by name; None for everything", default=None)


def is_own(name: object) -> bool:
    """Whether a name stands for a user's own code.

    >>> is_own("my.module:algorithm"), is_own("fedavg")
    (True, False)
    """
    return isinstance(name, str) and ":" in name


def own_names(values: object) -> set[str]:
    """What reads like a name of own code in a file's values, at whatever depth."""
    if isinstance(values, Mapping):
        return own_names(list(values.values()))
    if isinstance(values, list):
        return set().union(*map(own_names, values))
    return {values} if isinstance(values, str) and _OWN.fullmatch(values) is not None else set()


@contextmanager
def allowing(modules: Collection[str], folder: Path) -> Iterator[None]:
    """Inside, only these modules, and modules below them, may be imported by name, and none from inside the folder."""
    token = _rule.set(_Rule(modules, folder.resolve()))
    if modules:
        # What the allowed code imports, now or later, must not come out of the folder either.
        sys.path[:] = [place for place in sys.path if not _inside(Path(place), folder.resolve())]
        if not _inside(Path.cwd(), folder.resolve()):
            make_importable(Path.cwd())
    try:
        yield
    finally:
        _rule.reset(token)


def make_importable(folder: Path) -> None:
    """Modules in this folder can be named, as those beside a script can be imported by it."""
    place = folder.resolve()
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
    if place not in _folders:
        _folders.append(place)


def make_names_importable(names: Iterable[str], folder: Path) -> None:
    """What a file names is found beside it, or on Python's path, or in the current folder, in this order.

    The last is for files that a command wrote elsewhere, such as the best one of a search: they name the same modules.
    """
    tops = {name.partition(":")[0].partition(".")[0] for name in names}
    if not tops:
        return
    make_importable(folder)
    here = Path.cwd()
    lost = [top for top in tops if importlib.util.find_spec(top) is None]
    if any((here / f"{top}.py").is_file() or (here / top).is_dir() for top in lost):
        make_importable(here)


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
        _check_place(field, module, label)
        found: Any = importlib.import_module(module)
    except ConfigError:
        raise
    except Exception as error:  # importing runs the user's code, which may raise anything
        raise ConfigError(
            f"{field} {label} cannot be imported: {type(error).__name__}: {first_line(error)}."
        ) from error
    _send_along(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise unknown(f"{field}: name in {module}", part, [n for n in vars(found) if not n.startswith("_")])
        found = getattr(found, part)
    return found


def _check_allowed(field: str, module: str, label: str) -> None:
    rule = _rule.get()
    if rule is not None and not any(module == each or module.startswith(f"{each}.") for each in rule.modules):
        raise ConfigError(
            f"{field} names code of its own, {label}, and a stored run may come from somebody else. If you trust it, "
            f"add --allow-code {module}."
        )


def _check_place(field: str, module: str, label: str) -> None:
    """The module is no file of a stored folder, and its name means the same in all folders that were named."""
    top = module.partition(".")[0]
    places = [folder for folder in _folders if (folder / f"{top}.py").exists() or (folder / top).is_dir()]
    if len(places) > 1:
        raise ConfigError(f"{field} {label} must mean one module. Got {top!r} in {places[0]} and in {places[1]}.")
    rule = _rule.get()
    if rule is None:
        return
    parts = module.split(".")
    for end in range(1, len(parts) + 1):  # finding a module imports the packages above it: look at those first
        spec = importlib.util.find_spec(".".join(parts[:end]))
        found = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        if any(place is not None and _inside(Path(place), rule.folder) for place in found):
            raise ConfigError(f"{field} {label} must not lie inside the stored run. Got {rule.folder}.")


def _send_along(module: str) -> None:
    """Workers on other machines get the code of the module's folder by value."""
    top = sys.modules[module.partition(".")[0]]
    file = getattr(top, "__file__", None)
    places = [Path(file)] if file else [Path(place) / "__init__.py" for place in getattr(top, "__path__", ())]
    for place in places:
        send_code_in(place.parent.parent if place.name == "__init__.py" else place.parent)


def _inside(place: Path, folder: Path) -> bool:
    try:
        return place.resolve().is_relative_to(folder)
    except (OSError, ValueError, RuntimeError):
        return False
