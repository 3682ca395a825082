"""Tensors of different lengths in one stack: shorter ones are padded with zeros."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtempo.params import Params


def stack_padded(personal: list[Params]) -> tuple[Params, list[dict[str, torch.Size]]]:
    """Personal tensors of all clients, stacked, and their true shapes where padding was needed.

    Heads have as many rows as the client has classes. Shorter ones are padded with zeros; `_outputs` in the batch tells
    the loss which outputs are real.
    """
    if not any(personal):
        return {}, []
    shapes = [{n: t.shape for n, t in own.items()} for own in personal]
    stacked = {}
    for name in personal[0]:
        tensors = [own[name] for own in personal]
        longest = max((t.shape[0] for t in tensors if t.dim()), default=0)
        stacked[name] = torch.stack([_padded(t, longest) for t in tensors])
    return stacked, [] if all(s == shapes[0] for s in shapes) else shapes


def _padded(tensor: Tensor, length: int) -> Tensor:
    if not tensor.dim() or tensor.shape[0] == length:
        return tensor
    return torch.cat([tensor, tensor.new_zeros(length - tensor.shape[0], *tensor.shape[1:])])


def widened(stacked: Tensor, width: int) -> Tensor:
    """The stack with zero rows appended, up to `width` rows per client. No batch is ever drawn from them."""
    if stacked.dim() < 2 or stacked.shape[1] == width:
        return stacked
    return torch.cat([stacked, stacked.new_zeros(len(stacked), width - stacked.shape[1], *stacked.shape[2:])], dim=1)
