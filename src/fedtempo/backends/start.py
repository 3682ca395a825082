"""How worker processes are started: forked where that is safe, spawned where it is not.

A forked worker inherits everything and starts in milliseconds. Windows cannot fork. On macOS forking is not safe, since
system libraries start threads; nor is it once an accelerator is in use, whose state does not survive a fork. A spawned
worker is a new Python process that gets the federation as bytes. Both compute the same bits.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Literal, get_args

from fedtempo.errors import ConfigError, require
from fedtempo.support.accelerator import accelerator_in_use

StartMethod = Literal["fork", "spawn"]
FORCED = "FEDTEMPO_START_METHOD"
"""The environment variable that decides instead of the rules below."""
SENDS = "cloudpickle"
"""The library that turns a federation, functions and all, into bytes for a spawned worker."""


def start_method() -> StartMethod | None:
    """How workers would be started now; None where they cannot be."""
    forced = os.environ.get(FORCED)
    if forced:
        require(forced in get_args(StartMethod), FORCED, "'fork' or 'spawn'", forced)
        return "fork" if forced == "fork" else "spawn"
    if why_not_fork() is None:
        return "fork"
    return "spawn" if find_spec(SENDS) else None


def why_not_fork() -> str | None:
    """The reason for which workers are not forked; None where they are."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return "this system cannot fork"
    if sys.platform == "darwin":
        return "forking is not safe on macOS"
    return "an accelerator is in use, whose state does not survive a fork" if accelerator_in_use() else None


def required_start_method() -> StartMethod:
    """How workers are started, or an error that says what is missing."""
    method = start_method()
    if method is None:
        reason = f"{why_not_fork()}, and spawned workers need {SENDS}"
        raise ConfigError(f"workers must be 1: {reason}: pip install {SENDS}.")
    return method


@contextmanager
def without_main() -> Iterator[None]:
    """While a process is spawned, hide the program that runs.

    A spawned Python would import it first, to find functions by name. Ours come as bytes; importing a program that is
    not written for that would run it again.
    """
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program
