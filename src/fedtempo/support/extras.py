"""Libraries that only a part of FedTempo needs. Each comes with an extra, and where it is absent one line says so."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from fedtempo.errors import ConfigError, FedTempoError

PUBLISHED = False
"""Whether the package index has FedTempo. Until it does, its name there is anybody's: nothing may say to install it."""


def install(extra: str) -> str:
    """The command that brings an extra."""
    return f"pip install 'fedtempo[{extra}]'" if PUBLISHED else f"pip install '.[{extra}]' in FedTempo's clone"


def library(module: str, extra: str | None, what: str, error: type[FedTempoError] = ConfigError) -> ModuleType:
    """Another project's module, imported when it is needed; the error names who needs it and how to install it.

    A library that no extra can bring, because it does not go with the others, is installed by its own name.
    """
    name = module.partition(".")[0]
    try:
        import_module(name)
        return import_module(module)
    except ImportError as reason:
        how = f"pip install {name.replace('_', '-')}" if extra is None else install(extra)
        # A library that is there and cannot be imported lacks something of its own.
        found = "" if isinstance(reason, ModuleNotFoundError) and reason.name == name else f" Got {reason}."
        raise error(f"{what} needs {name}: {how}.{found}") from None
