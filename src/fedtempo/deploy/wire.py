"""Uploads and downloads as bytes.

A message names nothing. It is a mark, numbers and raw tensors one after the other, and a SHA-256 over all of it; names,
shapes and types come from the reader's own model, and with them the only length a message may have. A hash of the
sender's names, shapes and types tells a sender with another model. So whatever bytes arrive, nothing is allocated for
them beyond what the reader expects, and nothing in them can name a type, choose a path or run.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fedtempo.errors import FedTempoError
from fedtempo.params import Params
from fedtempo.server.admission import Expected
from fedtempo.server.sums import Groups

MARK = b"fedtempo\x01"
"""The last byte is the version of the format."""
HASH = 32
"""Bytes of a SHA-256."""
NOTHING_KEPT = bytes(HASH)
"""Instead of a hash: a client keeps nothing, or has the state before its first round, which is not stored."""
Form = tuple[tuple[str, torch.Size, torch.dtype], ...]


class WireError(FedTempoError, ValueError):
    """Received bytes are not the message that was expected."""


@dataclass(frozen=True)
class Layout:
    """What a message of one kind holds: whole numbers, numbers and tensors, each by name and in this order."""

    kind: str
    integers: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    tensors: Form = ()

    @cached_property
    def size(self) -> int:
        """The length in bytes of every message of this layout."""
        values = 8 * (len(self.integers) + len(self.numbers))
        return len(MARK) + HASH + values + sum(_bytes(shape, dtype) for _, shape, dtype in self.tensors) + HASH

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash of all names, shapes and types."""
        tensors = [(name, tuple(shape), str(dtype)) for name, shape, dtype in self.tensors]
        return hashlib.sha256(repr((self.kind, self.integers, self.numbers, tensors)).encode()).digest()


class Contents(NamedTuple):
    """What a message says."""

    integers: Mapping[str, int]
    numbers: Mapping[str, float]
    tensors: Mapping[str, Tensor]


def form_of(tensors: Mapping[str, Tensor]) -> Form:
    """Names, shapes and types of tensors."""
    return tuple((name, tensor.shape, tensor.dtype) for name, tensor in tensors.items())


def encode(kind: str, contents: Contents) -> bytes:
    """A message in the layout of its own contents."""
    integers, numbers, tensors = contents
    layout = Layout(kind, tuple(integers), tuple(numbers), form_of(tensors))
    values = struct.pack(f"<{len(integers)}q{len(numbers)}d", *integers.values(), *numbers.values())
    message = b"".join([MARK, layout.fingerprint, values, *map(_to_bytes, tensors.values())])
    return message + hashlib.sha256(message).digest()


def decode(layout: Layout, data: bytes) -> Contents:
    """The inverse of `encode` for a message of the layout that the reader expects; anything else is refused."""
    if not isinstance(data, bytes) or len(data) != layout.size:
        found = len(data) if isinstance(data, bytes) else type(data).__name__
        raise WireError(f"{layout.kind} must be {layout.size} bytes. Got {found}.")
    if not data.startswith(MARK):
        raise WireError(f"{layout.kind} must begin with the mark of this version. It does not.")
    if hashlib.sha256(memoryview(data)[:-HASH]).digest() != data[-HASH:]:
        raise WireError(f"{layout.kind} must have the hash it ends with. It is damaged.")
    if data[len(MARK) : len(MARK) + HASH] != layout.fingerprint:
        raise WireError(f"{layout.kind} must have the names, shapes and types of this model. It has others.")
    place = len(MARK) + HASH
    count = len(layout.integers)
    values = struct.unpack_from(f"<{count}q{len(layout.numbers)}d", data, place)
    place += 8 * len(values)
    tensors: Params = {}
    for name, shape, dtype in layout.tensors:
        length = _bytes(shape, dtype)
        tensors[name] = _from_bytes(data[place : place + length], shape, dtype)
        place += length
    return Contents(
        dict(zip(layout.integers, values[:count], strict=True)),
        dict(zip(layout.numbers, values[count:], strict=True)),
        tensors,
    )


def _bytes(shape: torch.Size, dtype: torch.dtype) -> int:
    return shape.numel() * dtype.itemsize


def _to_bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def _from_bytes(data: bytes, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


# ---------------------------------------------------------------------- uploads


@dataclass(frozen=True)
class Upload:
    """What one client sends after its local work. What it keeps for itself is known by its hash alone."""

    client: int
    round: int
    weight: float
    loss: float
    groups: Groups
    measurements: Mapping[str, float] = field(default_factory=dict)
    kept: bytes = bytes(HASH)
    """The SHA-256 of the client's personal tensors; zeros where it keeps none."""


def upload_layout(expected: Expected, measured: Iterable[str]) -> Layout:
    """What an upload must look like, from the server's own model and client program."""
    tensors = tuple(
        (f"{group}/{name}", shape, dtype) for group, form in expected.items() for name, (shape, dtype) in form.items()
    )
    kept = ("kept", torch.Size([HASH]), torch.uint8)
    return Layout("upload", ("client", "round"), ("weight", "loss", *measured), (kept, *tensors))


def upload_to_bytes(upload: Upload) -> bytes:
    """An upload on its way to the server."""
    tensors = {f"{group}/{name}": t for group, named in upload.groups.items() for name, t in named.items()}
    kept = torch.frombuffer(bytearray(upload.kept), dtype=torch.uint8)
    return encode(
        "upload",
        Contents(
            {"client": upload.client, "round": upload.round},
            {"weight": upload.weight, "loss": upload.loss, **upload.measurements},
            {"kept": kept, **tensors},
        ),
    )


def upload_from_bytes(data: bytes, layout: Layout, expected: Expected) -> Upload:
    """An upload in the layout of the server's own model, or `WireError`."""
    integers, numbers, tensors = decode(layout, data)
    groups = {group: {name: tensors[f"{group}/{name}"] for name in form} for group, form in expected.items()}
    measurements = {name: value for name, value in numbers.items() if name not in ("weight", "loss")}
    kept = tensors["kept"].numpy().tobytes()
    return Upload(integers["client"], integers["round"], numbers["weight"], numbers["loss"], groups, measurements, kept)
