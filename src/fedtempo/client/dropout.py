"""Dropout that a seed decides: the same masks in every backend, for every client on its own.

While a model runs inside `seeded_dropout(key)`, torch's dropout functions take their masks from a
counter-based generator. Under `vmap` each client has its own key, so clients can run side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedtempo.errors import ModelError
from fedtempo.randomness import uniform


class seeded_dropout(TorchFunctionMode):  # noqa: N801 - used as a context manager, like torch.no_grad
    """Replace torch's dropout inside the `with` block; each call has its own stream of numbers."""

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self._key = key
        self._calls = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.dropout:
            return self._drop(*args, **kwargs)
        if func in (F.dropout1d, F.dropout2d, F.dropout3d):
            return self._drop(*args, **{**kwargs, "channels": True})
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        return func(*args, **kwargs)

    def _drop(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, channels: bool = False
    ) -> Tensor:
        if not training or p == 0.0:
            return input
        self._calls += 1
        shape = input.shape[:2] + (1,) * (input.dim() - 2) if channels else input.shape
        kept = uniform(self._key, torch.Size(shape), self._calls) >= p
        return input * (kept.to(input.dtype) / (1 - p))

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        **kwargs: Any,
    ) -> Tensor:
        if dropout_p == 0.0:
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale, **kwargs
            )
        # Torch's fused kernel draws its own masks, so attention with dropout is written out.
        scores = query @ key.transpose(-2, -1) * (scale or 1 / math.sqrt(query.shape[-1]))
        if is_causal:
            future = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        return self._drop(scores.softmax(-1), dropout_p) @ value


def uses_dropout(model: nn.Module) -> bool:
    """Whether training the model draws masks; dropout inside nn.GRU or nn.LSTM cannot be seeded and is refused."""
    for name, module in model.named_modules():
        if isinstance(module, nn.RNNBase) and module.dropout > 0:
            raise ModelError(
                f"model.{name} must have dropout=0: torch draws its masks where no seed can reach them. "
                "Stack single layers with nn.Dropout between them instead."
            )
        if isinstance(module, (nn.AlphaDropout, nn.FeatureAlphaDropout)) and module.p > 0:
            raise ModelError(
                f"model.{name} must be nn.Dropout, not {type(module).__name__}: its masks cannot be seeded."
            )
    return any(_rate(module) > 0 for module in model.modules())


def _rate(module: nn.Module) -> float:
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return float(module.p)
    rate = getattr(module, "dropout", 0.0) if isinstance(module, nn.MultiheadAttention) else 0.0
    return float(rate)
