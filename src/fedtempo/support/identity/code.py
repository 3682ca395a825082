"""The code of functions and classes, as far as it tells them apart: no comments, no addresses, no line numbers."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path


@functools.lru_cache(maxsize=1024)
def is_installed(module: str | None) -> bool:
    """Whether a module is ours, Python's or an installed package's: its version tells it apart, not its code."""
    found = sys.modules.get(module or "")
    if (module or "").partition(".")[0] in ("fedtempo", "builtins"):
        return True
    if found is None or module == "__main__" or getattr(found, "__file__", None) is None:
        return found is not None and module in sys.builtin_module_names
    file = Path(str(found.__file__)).resolve()
    places = {Path(place).resolve() for place in sysconfig.get_paths().values()}
    return any(part in ("site-packages", "dist-packages") for part in file.parts) or any(
        place in file.parents for place in places
    )


def code_of(function: types.FunctionType, installed: bool) -> str:
    """A function's code: its source without comments or, for a lambda, which shares its line, its instructions."""
    source = None if function.__name__ == "<lambda>" or installed else source_of(function)
    if source is not None:
        return source
    return "" if installed and function.__name__ != "<lambda>" else _instructions(function.__code__)


def _instructions(code: types.CodeType) -> str:
    constants = [_instructions(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    if any(isinstance(c, frozenset) for c in code.co_consts):  # a set prints in another order in every process
        constants = [
            repr(sorted(map(repr, c))) if isinstance(c, frozenset) else t
            for c, t in zip(code.co_consts, constants, strict=True)
        ]
    return repr((code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars))


def source_of(thing: Callable[..., object] | type) -> str | None:
    """The source without comments and layout; None where there is no file to read it from."""
    try:
        return ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(thing))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None


def globals_of(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """The module's names that a function uses and that are the user's: its own functions, classes and constants."""
    names = sorted(set(_names(function.__code__)))
    for name in names:
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
