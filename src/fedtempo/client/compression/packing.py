"""From the tensors of a message to the parts that travel, and back; and what a client remembers of its errors.

Every tensor is compressed by itself: it has its own k, its own scale and its own draws. A tensor of one number, and one
of whole numbers, travels as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtempo.client.compression.compressor import Compressor, FlatForm, PackedError, Parts
from fedtempo.errors import TrainingError
from fedtempo.params import Params
from fedtempo.randomness import client_keys

PREFIX = "_compression/"
"""Leads the names of error memories among what a client keeps."""
ALL_CLIENTS = -1
"""Stands for the client in the draws of a download, which is the same for all clients."""

TensorForms = Mapping[str, tuple[torch.Size, torch.dtype]]
"""Shape and type of every tensor of a message, by name."""
KeyOf = Callable[[str], int]
"""The key of a tensor's draws, by its name."""


class Sent(NamedTuple):
    """A message: as the receiver will read it, as it travels, and what the sender remembers if it is accepted."""

    tensors: Params
    packed: Params
    memory: Params


def keys_of(seed: int, round_number: int, client: int, group: str) -> KeyOf:
    """The keys of one message: they depend on seed, round, client and tensor, and on nothing else."""

    def key_of(name: str) -> int:
        (key,) = client_keys(seed, np.array([client]), "compression", round_number, group, name)
        return int(key) & (2**63 - 1)

    return key_of


def is_compressed(shape: torch.Size, dtype: torch.dtype) -> bool:
    """Whether a tensor is worth compressing."""
    return dtype.is_floating_point and shape.numel() > 1


def memory_type(dtype: torch.dtype) -> torch.dtype:
    """The type of a memory: small errors add up over rounds, and 16 bits would lose them."""
    return torch.promote_types(dtype, torch.float32)


def first_error_memory(rule: Compressor, group: str, forms: TensorForms) -> Params:
    """What a client remembers before its first message: nothing was left out, nothing was sent."""
    if rule.feedback == "none":
        return {}
    return {
        f"{PREFIX}{group}/{name}": torch.zeros(shape, dtype=memory_type(dtype))
        for name, (shape, dtype) in forms.items()
        if is_compressed(shape, dtype)
    }


def error_memory_in(personal: Mapping[str, Tensor]) -> Params:
    """The error memories among what a client keeps."""
    return {name: tensor for name, tensor in personal.items() if name.startswith(PREFIX)}


def without_error_memory(personal: Params) -> Params:
    """What a client keeps besides its error memories."""
    if not any(name.startswith(PREFIX) for name in personal):
        return personal
    return {name: tensor for name, tensor in personal.items() if not name.startswith(PREFIX)}


def compress_tensors(
    rule: Compressor, group: str, tensors: Mapping[str, Tensor], memory: Mapping[str, Tensor], key_of: KeyOf
) -> Sent:
    """Compress one group of a message.

    EF14 (Seide et al., 2014; Karimireddy et al., 2019): p = tensor + memory, send C(p), memory <- p - C(p).
    EF21 (Richtarik et al., 2021): send C(tensor - memory), memory <- memory + C(tensor - memory).
    """
    sent = Sent({}, {}, {})
    for name, tensor in tensors.items():
        if not is_compressed(tensor.shape, tensor.dtype):
            sent.tensors[name] = sent.packed[name] = tensor
            continue
        place = f"{PREFIX}{group}/{name}"
        wanted, old = tensor.detach().to(memory_type(tensor.dtype)), memory.get(place)
        if old is not None:
            wanted = wanted + old if rule.feedback == "ef14" else wanted - old
        parts, arrived = _travelled(rule, wanted.to(tensor.dtype), key_of(name))
        sent.tensors[name] = arrived
        sent.packed.update({f"{name}/{part}": value for part, value in parts.items()})
        if old is not None:
            sent.memory[place] = wanted - arrived if rule.feedback == "ef14" else old + arrived
    return sent


def _travelled(rule: Compressor, tensor: Tensor, key: int) -> tuple[Parts, Tensor]:
    encode, decode = rule.pair
    flat = tensor.cpu().reshape(-1)
    parts = encode(flat, key)
    arrived = decode(dict(parts), FlatForm(flat.numel(), flat.dtype), key)
    if arrived.shape != flat.shape or arrived.dtype != flat.dtype:
        wanted = f"{flat.numel()} numbers of {flat.dtype}"
        raise TrainingError(f"compress must decode to {wanted}. Got {tuple(arrived.shape)} of {arrived.dtype}.")
    return parts, arrived.reshape(tensor.shape).to(tensor.device)


def packed_forms(rule: Compressor, forms: TensorForms) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Shape and type of every part that travels, from the forms of the tensors alone."""
    found: dict[str, tuple[torch.Size, torch.dtype]] = {}
    for name, (shape, dtype) in forms.items():
        if is_compressed(shape, dtype):
            parts = rule.pair[0](torch.zeros(shape.numel(), dtype=dtype), 0)
            found.update({f"{name}/{part}": (value.shape, value.dtype) for part, value in parts.items()})
        else:
            found[name] = (shape, dtype)
    return found


def unpack_tensors(rule: Compressor, packed: Mapping[str, Tensor], forms: TensorForms, key_of: KeyOf) -> Params:
    """The tensors of a message that came as parts; `PackedError` where the parts are none that an encoder makes."""
    tensors: Params = {}
    for name, (shape, dtype) in forms.items():
        if not is_compressed(shape, dtype):
            tensors[name] = packed[name]
            continue
        parts = {n.removeprefix(f"{name}/"): part for n, part in packed.items() if n.startswith(f"{name}/")}
        flat = rule.pair[1](parts, FlatForm(shape.numel(), dtype), key_of(name))
        if not isinstance(flat, Tensor) or flat.shape != (shape.numel(),) or flat.dtype != dtype:
            raise PackedError(f"{name} must decode to {shape.numel()} numbers of {dtype}. It does not.")
        tensors[name] = flat.reshape(shape)
    return tensors
