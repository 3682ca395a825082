"""Nested values for the way between our own processes: tensors travel as plain arrays.

torch's own way of sending a tensor opens a file descriptor for each; a model has many tensors and a run many rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Packed(NamedTuple):
    """A tensor on its way."""

    values: np.ndarray


def pack(tree: Any) -> Any:
    """The same value with a `Packed` array in place of every tensor."""
    return _exchange(tree, Tensor, lambda tensor: Packed(tensor.detach().cpu().numpy()))


def unpack(tree: Any) -> Any:
    """The inverse of `pack`."""
    return _exchange(tree, Packed, lambda packed: torch.from_numpy(packed.values))


def _exchange(tree: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _exchange(value, kind, change) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_exchange(value, kind, change) for value in tree]
    if isinstance(tree, tuple):
        parts = [_exchange(value, kind, change) for value in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{f.name: _exchange(getattr(tree, f.name), kind, change) for f in fields(tree)})
    return tree
