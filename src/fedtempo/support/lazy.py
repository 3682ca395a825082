"""Packages that load their public names when the first of them is used.

Importing one module of such a package does not load all others.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module


def names_of(module: str, *more: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the package around a module whose `__all__` has the package's public names.

    `more` are names of the package's own that `dir` shows beside them.
    """
    package = module.rpartition(".")[0]

    def find(name: str) -> object:
        if name == "__all__" or not name.startswith("_"):
            public = import_module(module)
            if name in ("__all__", *public.__all__):
                return getattr(public, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def known() -> list[str]:
        return [*import_module(module).__all__, *more]

    return find, known
