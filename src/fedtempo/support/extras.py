"""Libraries that only a part of FedTempo needs. Each comes with an extra, and where it is absent one line says so."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from fedtempo.errors import ConfigError, FedTempoError


def library(module: str, extra: str | None, what: str, error: type[FedTempoError] = ConfigError) -> ModuleType:
    """Another project's module, imported when it is needed; the error names who needs it and how to install it.

    A library that no extra can bring, because it does not go with the others, is installed by its own name.
    """
    name = module.partition(".")[0]
    try:
        import_module(name)
        return import_module(module)
    except ImportError as reason:
        package = name.replace("_", "-") if extra is None else f"'fedtempo[{extra}]'"
        # A library that is there and cannot be imported lacks something of its own.
        found = "" if isinstance(reason, ModuleNotFoundError) and reason.name == name else f" Got {reason}."
        raise error(f"{what} needs {name}: pip install {package}.{found}") from None
