"""Messages between our own processes: large tensors go through shared memory, small ones as arrays.

Torch's own way of sending a tensor opens a file descriptor for each tensor. A model has many tensors and a run has many
rounds.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedtempo.params import bits_of

Message = TypeVar("Message")
LARGE = 1 << 15
"""Bytes from which a tensor goes through shared memory. Smaller ones are cheaper inside the message."""
_ALIGNED = 64
"""Bytes to which tensors are aligned, a cache line."""


class Packed(NamedTuple):
    """A tensor on its way: its bits and their type, or where in the shared memory they are."""

    values: np.ndarray | None
    dtype: torch.dtype
    place: tuple[int, torch.Size] | None = None


class Inherited(NamedTuple):
    """Stands in a message for something that the worker has had since its start."""

    place: int


class SharedBuffers(NamedTuple):
    """Memory that two processes see: for messages, and for one 8-byte counter."""

    content: Any
    counter: Any


class Mailbox:
    """Shared memory between a worker and its driver. They take turns, so its content belongs to one message.

    A counter beside the messages shows the worker's progress while it works.
    """

    def __init__(self, memory: int | SharedBuffers) -> None:
        """With so many bytes of memory that a fork inherits, or with memory that was made for a spawned process."""
        if isinstance(memory, int):
            memory = SharedBuffers(mmap.mmap(-1, max(memory, mmap.PAGESIZE)), mmap.mmap(-1, mmap.PAGESIZE))
        self._bytes = torch.frombuffer(memory.content, dtype=torch.uint8)
        self._used = 0
        self._counter = np.frombuffer(memory.counter, dtype=np.int64)[:1]

    @property
    def progress(self) -> int:
        """Blocks that the worker has finished."""
        return int(self._counter[0])

    def advance(self) -> None:
        """Count a block that the worker has finished."""
        # One writer and one reader of an aligned 8-byte word: no lock is needed.
        self._counter[0] += 1

    def pack(self, tree: Any) -> Any:
        """The same value with a `Packed` in place of every tensor."""
        self._used = 0
        return exchange(tree, Tensor, self._put)

    def unpack(self, tree: Any, copy: bool = True) -> Any:
        """The inverse of `pack`; without a copy, large tensors are lost when the next message comes."""
        return exchange(tree, Packed, lambda packed: self._take(packed, copy))

    def _put(self, tensor: Tensor) -> Packed:
        tensor = tensor.detach().cpu()
        size = tensor.numel() * tensor.element_size()
        # What does not fit any more travels inside the message: slower, but never wrong.
        if size < LARGE or self._used + size > len(self._bytes):
            return as_array(tensor)
        start, self._used = self._used, self._used + -(-size // _ALIGNED) * _ALIGNED
        self._view(start, tensor.shape, tensor.dtype).copy_(tensor)
        return Packed(None, tensor.dtype, (start, tensor.shape))

    def _take(self, packed: Packed, copy: bool) -> Tensor:
        if packed.values is not None:
            return as_tensor(packed.values, packed.dtype)
        assert packed.place is not None
        view = self._view(*packed.place, packed.dtype)
        # numpy copies large tensors into huge pages, which torch does not ask for; it has no bfloat16.
        if copy and packed.dtype in (torch.float32, torch.float64):
            return torch.from_numpy(view.numpy().copy())
        return view.clone() if copy else view

    def _view(self, start: int, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        size = shape.numel() * dtype.itemsize
        return self._bytes[start : start + size].view(dtype).view(shape)


def as_array(tensor: Tensor) -> Packed:
    """A tensor as an array of its bits; numpy lacks some of torch's types."""
    return Packed(bits_of(tensor), tensor.dtype)


def as_tensor(values: np.ndarray, dtype: torch.dtype) -> Tensor:
    """The tensor of `as_array`, in the array's memory."""
    tensor = torch.from_numpy(values)
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


def exchange(tree: Any, kind: type | tuple[type, ...], change: Callable[[Any], Any]) -> Any:
    """The same nested value with everything of a kind changed."""
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, dict):
        return {key: exchange(value, kind, change) for key, value in tree.items()}
    if isinstance(tree, list):
        return [exchange(value, kind, change) for value in tree]
    if isinstance(tree, tuple):
        parts = [exchange(value, kind, change) for value in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{f.name: exchange(getattr(tree, f.name), kind, change) for f in fields(tree)})
    return tree


def by_place(tree: Message, inherited: tuple[object, ...]) -> Message:
    """The same value, in which places stand for what the receiver has: functions of a user cannot be pickled."""
    places = {type(known): Inherited(place) for place, known in enumerate(inherited)}
    changed: Message = exchange(tree, tuple(places), lambda found: places[type(found)])
    return changed


def in_place(tree: Message, inherited: tuple[object, ...]) -> Message:
    """The inverse of `by_place`."""
    changed: Message = exchange(tree, Inherited, lambda found: inherited[found.place])
    return changed
