"""The identity of a value: a hash of what it is, the same in every process.

Numbers and strings count by value, tensors and arrays by their bytes, dataclasses by their fields (but those with
`identity: False` in their metadata, which only describe others), modules by their structure and tensors. A function
counts by its name, its code (without comments), its defaults, what it captures, and the functions and constants of the
user's that it calls on. Code of installed packages counts by its name.

What can change while a run goes on, such as a list that a function captures, has no identity: `Unstable` says what and
why.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import io
import logging
import mmap
import random
import types
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedtempo.params import bits_of
from fedtempo.support.identity.code import code_of, globals_of, is_installed, source_of

READ_IN_FULL = 256 * 2**20
"""Bytes of an array in a mapped file that are read in full; of a larger one, blocks all over it."""
BLOCKS, BLOCK = 1024, 64 * 2**10
LAZY_ROWS = 64
"""Rows of a column that is read row by row that are looked at, besides what it says of itself."""
ADVICE = "Use numbers, strings, tuples, tensors or frozen dataclasses there."

_PLAIN = (type(None), bool, int, str, bytes, complex, range, slice, types.EllipsisType, PurePath)
_TYPES = (torch.dtype, torch.device, np.dtype)
_LIVE = (io.IOBase, types.GeneratorType, torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_MODULE_STATE = frozenset(vars(nn.Module())) | {"_as_constructed"}
"""Attributes that torch gives every module: tensors and submodules are walked by name, the rest decides nothing."""


class Unstable(Exception):  # noqa: N818 - it is a finding about a value, which the caller turns into an error
    """A value without an identity. The message says where it is and why."""


def identity_of(value: object, name: str = "value") -> str:
    """A hash of what the value is. Raises `Unstable` where that cannot be said.

    >>> identity_of((1, 2.0)) == identity_of((1, 2.0)), identity_of(1) == identity_of(1.0)
    (True, False)
    """
    return walked(value, name)


def walked(value: object, name: str, floats: Callable[[np.ndarray], None] | None = None) -> str:
    """A hash of the value. `floats`, if given, takes the numbers of floating-point arrays, which the hash omits."""
    walk = _Walk(floats)
    walk.absorb(value, name)
    return walk.state.hexdigest()


class _Walk:
    """One pass over a value. What was met before counts by where it was met, so cycles end."""

    def __init__(self, floats: Callable[[np.ndarray], None] | None) -> None:
        self.state, self._floats = hashlib.sha256(), floats
        self._met: dict[int, int] = {}
        self._alive: list[object] = []  # keeps every object alive, so that `id()` is not reused

    def absorb(self, value: Any, path: str, in_function: bool = False) -> None:
        """Add a value; `in_function` says that a function can reach it, so that it must not be changeable."""
        if isinstance(value, enum.Enum):
            self._say("enum", type(value).__qualname__, value.name)
        elif isinstance(value, float):
            self._say("float", value.hex())
        elif isinstance(value, (*_PLAIN, *_TYPES)):
            self._say(type(value).__name__, repr(value) if not isinstance(value, PurePath) else str(value))
        elif isinstance(value, np.generic) and type(value.item()) in (bool, int, float):
            self.absorb(value.item(), path, in_function)
        elif isinstance(value, np.generic):
            self._array(value, path)  # type: ignore[arg-type]
        elif id(value) in self._met:
            self._say("met", str(self._met[id(value)]))
        else:
            self._met[id(value)] = len(self._met)
            self._alive.append(value)
            self._structure(value, path, in_function)

    def _structure(self, value: Any, path: str, in_function: bool) -> None:
        if isinstance(value, Tensor):
            self._say("tensor", str(value.requires_grad))
            rough = self._floats is not None and value.dtype == torch.bfloat16  # numpy has no such numbers
            self._array(bits_of(value.float() if rough else value), path)
        elif isinstance(value, np.ndarray):
            self._array(value, path)
        elif isinstance(value, types.ModuleType):
            self._say("module", value.__name__)
        elif isinstance(value, type):
            self._class(value, path)
        elif isinstance(value, nn.Module):
            self._network(value, path)
        elif isinstance(value, functools.partial):
            self._say("partial")
            for part, inner in (("func", value.func), ("args", value.args), ("keywords", value.keywords)):
                self.absorb(inner, f"{path}.{part}")
        elif inspect.isroutine(value) or hasattr(value, "__wrapped__"):
            self._function(value, path)
        else:
            self._container(value, path, in_function)

    def _container(self, value: Any, path: str, in_function: bool) -> None:
        if isinstance(value, tuple):
            self._say("tuple", type(value).__qualname__, str(len(value)))
            for index, inner in enumerate(value):
                self.absorb(inner, f"{path}.{_field(value, index)}", in_function)
        elif isinstance(value, frozenset):
            # A set is iterated in another order in every process, so its members' hashes are sorted.
            self._say("set", *sorted(identity_of(inner, path) for inner in value))
        elif in_function and not _is_frozen(value):
            raise Unstable(f"{path} is a {type(value).__name__}, which can change while the run goes on. {ADVICE}")
        elif isinstance(value, list):
            self._say("list", str(len(value)))
            for index, inner in enumerate(value):
                self.absorb(inner, f"{path}[{index}]", in_function)
        elif isinstance(value, (set, bytearray)):
            self._say("set", *sorted(identity_of(inner, path) for inner in value))
        elif isinstance(value, Mapping):
            self._say("mapping", str(len(value)))
            # By the keys' hashes: keys of several types cannot be compared, and the order of insertion must not count.
            for key, inner in sorted(value.items(), key=lambda item: identity_of(item[0], path)):
                self.absorb(key, f"{path} key")
                self.absorb(inner, f"{path}[{key!r}]", in_function)
        else:
            self._object(value, path, in_function)

    def _object(self, value: Any, path: str, in_function: bool) -> None:
        """Any other object counts by its class and its attributes."""
        if isinstance(value, logging.Logger):
            return self._say("logger", value.name)
        if isinstance(getattr(value, "identity", None), str) and hasattr(value, "shape"):
            return self._lazy(value)
        if isinstance(value, _LIVE):
            raise Unstable(f"{path} is a {type(value).__name__}, which has no lasting value. {ADVICE}")
        self.absorb(type(value), f"{path}.__class__")
        if not hasattr(value, "__dict__"):
            return self._opaque(value, path, in_function)
        if dataclasses.is_dataclass(value):
            counted = [f.name for f in dataclasses.fields(value) if f.metadata.get("identity", True)]
            attributes = {name: getattr(value, name) for name in counted}
        else:
            attributes = dict(vars(value))
        for name, inner in sorted(attributes.items()):
            self._say("field", name)
            self.absorb(inner, f"{path}.{name}", in_function)
        return None

    def _opaque(self, value: Any, path: str, in_function: bool) -> None:
        """An object without attributes: by its slots or, like a date, by how it prints."""
        slots = value.__getstate__()
        if isinstance(slots, tuple) and len(slots) == 2 and isinstance(slots[1], dict):
            return self.absorb(tuple(sorted(slots[1].items())), path, in_function)
        # Python's default repr holds an address, which is another one in the next process.
        if " at 0x" in repr(value):
            raise Unstable(f"{path} is a {type(value).__name__}, which has no lasting value. {ADVICE}")
        return self._say("prints as", repr(value))

    def _network(self, model: nn.Module, path: str) -> None:
        """A module: the code of its layers, their settings, and every tensor."""
        self.absorb(type(model), f"{path}.__class__")
        for name, inner in sorted((*model._parameters.items(), *model._buffers.items()), key=lambda item: item[0]):
            self._say("tensor", name)
            self.absorb(inner, f"{path}.{name}")
        for name, inner in sorted(vars(model).items()):
            if name not in _MODULE_STATE:
                self._say("attribute", name)
                self.absorb(inner, f"{path}.{name}")
        # A hook can change every output, and no attribute or tensor of the module shows it.
        for hooks in (model._forward_hooks, model._forward_pre_hooks):
            for hook in hooks.values():
                self.absorb(hook, f"{path} hook")
        for name, child in model._modules.items():  # in their order, which decides what a Sequential computes
            self._say("child", name)
            self.absorb(child, f"{path}.{name}")

    def _function(self, function: Any, path: str) -> None:
        inner = inspect.unwrap(function)
        own = getattr(inner, "__self__", None)
        if own is not None and not isinstance(own, types.ModuleType):
            self._say("method", inner.__name__)
            self.absorb(own, f"{path}.__self__", in_function=True)
            inner = getattr(inner, "__func__", None)
        if inner is not None:
            self._code(inner, path)

    def _code(self, function: Any, path: str) -> None:
        code = getattr(function, "__code__", None)
        if not isinstance(function, types.FunctionType) or code is None:
            return self._say("builtin", str(getattr(function, "__module__", "")), function.__qualname__)
        installed = is_installed(function.__module__)
        where = function.__module__ if installed else ""
        self._say("function", where, function.__qualname__, code_of(function, installed))
        self.absorb(function.__defaults__, f"{path} defaults", in_function=not installed)
        self.absorb(tuple(sorted((function.__kwdefaults__ or {}).items())), f"{path} defaults", not installed)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._say("captures", name)
            self._captured(cell, f"{name!r} in {function.__qualname__} ({path})", not installed)
        if not installed:
            for name, inner in globals_of(function):
                self._say("uses", name)
                self.absorb(inner, f"{name!r} in {function.__qualname__} ({path})", in_function=True)
        return None

    def _captured(self, cell: Any, path: str, in_function: bool) -> None:
        try:
            inner = cell.cell_contents
        except ValueError:  # a name that is not bound yet
            return self._say("empty")
        return self.absorb(inner, path, in_function)

    def _class(self, kind: type, path: str) -> None:
        if is_installed(kind.__module__):
            return self._say("class", kind.__module__, kind.__qualname__)
        self._say("class", "", kind.__qualname__, source_of(kind) or "")
        for base in kind.__bases__:
            self.absorb(base, f"{path} base")
        for name, inner in sorted(vars(kind).items()):
            function = inner.__func__ if isinstance(inner, (classmethod, staticmethod)) else inner
            if isinstance(function, types.FunctionType):
                self._say("method", name)
                # A class is code. What its methods look up is taken as it is now, and not refused.
                for used, value in globals_of(function):
                    self._say("uses", used)
                    self.absorb(value, f"{used!r} in {kind.__qualname__}")
        return None

    def _array(self, array: np.ndarray, path: str) -> None:
        array = np.asarray(array)
        if array.dtype == object:
            return self.absorb(array.tolist(), path)
        self._say("array", str(array.dtype), str(array.shape))
        # The bytes of a file are the same on every machine.
        if self._floats is not None and np.issubdtype(array.dtype, np.floating) and not _is_mapped(array):
            return self._floats(array)
        flat = array.reshape(-1) if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(-1)
        data = flat.view(np.uint8) if flat.size else np.zeros(0, dtype=np.uint8)
        if len(data) <= READ_IN_FULL or not _is_mapped(array):
            self.state.update(data.data)
            return None
        for start in np.linspace(0, len(data) - BLOCK, BLOCKS, dtype=np.int64).tolist():
            self.state.update(data[start : start + BLOCK].data)
        return None

    def _lazy(self, column: Any) -> None:
        """A column that is read row by row: what it says of itself, and some of its rows."""
        self._say("lazy", column.identity, str(column.dtype), str(column.shape))
        for row in np.unique(np.linspace(0, len(column) - 1, LAZY_ROWS, dtype=np.int64)).tolist():
            self.state.update(np.ascontiguousarray(column[row]).tobytes())

    def _say(self, *words: str) -> None:
        for word in words:
            data = word.encode("utf-8", "surrogatepass")
            self.state.update(len(data).to_bytes(8, "big"))
            self.state.update(data)
        self.state.update(b"\n")


def _field(value: tuple[Any, ...], index: int) -> str:
    names = getattr(value, "_fields", ())
    return names[index] if index < len(names) else str(index)


def _is_frozen(value: object) -> bool:
    if dataclasses.is_dataclass(value):
        return bool(type(value).__dataclass_params__.frozen)  # type: ignore[union-attr]
    return isinstance(value, (types.MappingProxyType, logging.Logger))


def _is_mapped(array: np.ndarray) -> bool:
    base: Any = array
    while base is not None and not isinstance(base, (np.memmap, mmap.mmap)):
        base = getattr(base, "base", None)
    return base is not None
