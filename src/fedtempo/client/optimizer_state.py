"""Optimizer states between rounds: flattened to named tensors, so that clients can keep, send and average them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from fedtempo.client.compression.packing import PREFIX as MEMORY
from fedtempo.params import Params, is_plain, leaves, tree_map

State = TypeVar("State")
PREFIX = "_optimizer/"
"""Leads the names of optimizer states among what a client keeps, what it sends, and what the server sends down."""
GROUP = "optimizer"
"""The group of an upload that holds the states to be averaged."""
LAST_LOSS = "_last_loss"
"""The client's mean training loss of its last round, among what it keeps, where a schedule looks at it."""
_NOTES = (PREFIX, MEMORY, LAST_LOSS)


def without_states(tensors: Params) -> Params:
    """The tensors without the library's notes: optimizer states, the memory of a compressor, the last loss."""
    notes = [name for name in tensors if name.startswith(_NOTES)]
    return {name: t for name, t in tensors.items() if name not in notes} if notes else tensors


def named_state(index: int | str, state: object) -> Params:
    """The tensors of a phase's optimizer state; a name ends with the model's tensor it belongs to."""
    return leaves(state, f"{PREFIX}{index}")


def restored(index: int | str, fresh: State, stored: Mapping[str, Tensor]) -> State:
    """A state of the form of `fresh`, with a copy of every tensor that was stored in its place.

    An optimizer may write over its state. What was stored is also that of a client whose upload is refused, and what
    came down belongs to all clients.
    """
    names = list(named_state(index, fresh))
    if not any(name in stored for name in names):
        return fresh
    remaining = iter(names)

    def pick(tensor: Tensor) -> Tensor:
        found = stored.get(next(remaining), tensor)
        # A mean comes down in the model's type; counts are kept in a wider one.
        if not (is_plain(found) and is_plain(tensor)):
            return found.to(tensor.dtype, copy=True)
        # Laid out as the weights are here: kernels take the two together.
        return torch.empty_like(tensor).copy_(found)

    return tree_map(pick, fresh)


def belongs_to(name: str, tensors: Collection[str]) -> bool:
    """Whether a state's tensor belongs to one of these tensors of the model."""
    return name.rsplit("/", 1)[-1] in tensors


def slot_of(name: str) -> str:
    """The slot of a state's tensor, such as `m` or `v`: the part of its name before the model's tensor."""
    return name.split("/")[-2]
