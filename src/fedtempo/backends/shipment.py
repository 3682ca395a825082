"""How a federation and its messages are sent to another machine: arrays as arrays, mapped files by their path.

An array that is mapped from a file is not sent: the receiver opens the file, at the same path. Other arrays are sent as
they are; Ray puts them into memory that all actors of a machine share and none can write to.
"""

from __future__ import annotations

import copy
import mmap
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtempo.backends.mailbox import Packed, as_array, as_tensor, exchange
from fedtempo.data.federated import FederatedData
from fedtempo.errors import ConfigError, DataError, first_line
from fedtempo.federation.device_rows import DeviceRows
from fedtempo.federation.federation import Federation
from fedtempo.models.weights import put_on
from fedtempo.support.identity.code import is_installed

_CODE: set[Path] = set()
"""Folders of code that an experiment file has named; other machines do not have it."""


class Mapped(NamedTuple):
    """Where in a file an array lies."""

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int


class Shipment(NamedTuple):
    """A federation as it is sent."""

    federation: Federation
    loader: Callable[[], FederatedData] | None
    digest: str
    """Of the data at the sender, which the loader's have to match."""


def send_code_in(folder: Path) -> None:
    """From now on, modules that lie in this folder are sent to other machines by value."""
    _CODE.add(folder.resolve())


def modules_by_value() -> list[ModuleType]:
    """The imported modules of those folders. Installed packages must be installed there too."""
    found = [(name, module, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    return [
        module
        for name, module, file in found
        if file and _CODE.intersection(Path(file).resolve().parents) and not is_installed(name)
    ]


def packed(tree: Any) -> Any:
    """The same value with an array in place of every tensor."""
    return exchange(tree, Tensor, as_array)


def unpacked(tree: Any, device: str = "cpu") -> Any:
    """The inverse of `packed`. Read-only arrays in shared memory are copied, because a tensor can be written to."""

    def tensor(values: np.ndarray, dtype: torch.dtype) -> Tensor:
        return as_tensor(values if values.flags.writeable else values.copy(), dtype).to(device)

    return exchange(tree, Packed, lambda each: tensor(each.values, each.dtype))


@contextmanager
def sending(how: str) -> Iterator[None]:
    """Say in one line what cannot be sent as bytes: locks, open files, layers under `weight_norm`."""
    try:
        yield
    # Model, loss and functions are the user's, and so is what they raise.
    except Exception as error:
        reason = first_line(error).removesuffix(" See:").removesuffix(".")
        raise ConfigError(f"{how} must be able to send model, loss and algorithm to workers. Got {reason}.") from error


def serialise(federation: Federation, loader: Callable[[], FederatedData] | None) -> Shipment:
    """A federation ready to be sent: without cached values and on the CPU, because the receiver has its own device."""
    problem = federation.problem
    data = _without_rows(problem.data) if loader is not None else _each_array(problem.data, lambda a: mapped(a) or a)
    sent = replace(problem, model=put_on(copy.deepcopy(problem.model), "cpu"), data=data)
    digest = problem.data.digest() if loader else ""
    return Shipment(replace(federation, problem=sent, given_clients=None), loader, digest)


def receive(shipment: Shipment, device: str) -> Federation:
    """The federation of a shipment, rebuilt on this machine's device."""
    federation, loader, digest = shipment
    problem = federation.problem
    data = _each_array(problem.data, _opened) if loader is None else loader()
    if loader is not None and not (isinstance(data, FederatedData) and data.digest() == digest):
        raise DataError(f"ray_loader must return the data of the run. Got {data!r} on {platform.node()}.")
    here = replace(problem, data=data, model=put_on(problem.model, device), device=device, device_rows=DeviceRows())
    return replace(federation, problem=here)


def mapped(array: np.ndarray) -> Mapped | None:
    """Where in a file the array lies; None if it is in memory, not contiguous, or a private (copy-on-write) mapping."""
    owner: Any = array
    found: np.memmap[Any, Any] | None = None
    while isinstance(owner, np.ndarray):
        found = owner if found is None and isinstance(owner, np.memmap) else found
        owner = owner.base
    if found is None or not isinstance(owner, mmap.mmap) or found.mode == "c" or not array.flags.c_contiguous:
        return None
    if found.filename is None or not Path(found.filename).is_file():
        return None
    # A mapping starts at a multiple of the allocation granularity, before the array's own first byte.
    window = found.offset - found.offset % mmap.ALLOCATIONGRANULARITY
    into_window = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    return Mapped(str(Path(found.filename).resolve()), array.dtype, array.shape, window + into_window)


def _opened(array: Any) -> Any:
    if not isinstance(array, Mapped):
        return array
    path, dtype, shape, offset = array
    try:
        return np.memmap(path, dtype, "r", offset, shape)
    except (OSError, ValueError) as error:
        raise DataError(
            f"mapped data must lie at the same path on every machine. Got {path} on {platform.node()}: "
            f"{first_line(error)}. Put the file there, or give ray_loader."
        ) from error


def _each_array(data: FederatedData, change: Callable[[Any], Any]) -> FederatedData:
    """The data with every array changed."""
    arrays = {f.name: getattr(data, f.name) for f in fields(data)}
    changed = {n: change(a) for n, a in arrays.items() if isinstance(a, (np.ndarray, Mapped))}
    return replace(data, columns={n: change(column) for n, column in data.columns.items()}, **changed)


def _without_rows(data: FederatedData) -> FederatedData:
    nothing = np.zeros(0, dtype=np.int64)
    return replace(data, columns={}, bounds=nothing, order=None, held_out=nothing, names=None, outputs=None)
