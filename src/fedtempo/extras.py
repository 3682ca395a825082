"""Libraries that only a part of FedTempo needs. Each comes with an extra, and where it is absent one line says so."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fedtempo.errors import ConfigError, FedTempoError


def library(module: str, extra: str, what: str, error: type[FedTempoError] = ConfigError) -> Any:
    """Another project's module, imported when it is needed; the error names who needs it and how to install it."""
    try:
        return import_module(module)
    except ImportError as reason:
        name = module.partition(".")[0]
        said = f"{what} needs {name}: pip install 'fedtempo[{extra}]'"
        # A library that is there and cannot be imported lacks something of its own.
        found = "" if isinstance(reason, ModuleNotFoundError) and reason.name == name else f" Got {reason}."
        raise error(f"{said}.{found}") from None
