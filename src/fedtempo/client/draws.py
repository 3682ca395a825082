"""Random numbers of a model that a seed decides: dropout, noise, and what else a `forward` draws.

While a model runs inside `seeded_draws(key)`, torch's random functions take their numbers from a counter-based
generator. So a client draws the same in every backend, and under `vmap`, where each client has its own key, clients
draw side by side. Rows come first in what is drawn, so a row's numbers do not depend on how many rows follow.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedtempo.errors import ModelError
from fedtempo.randomness import uniform

Handler = Callable[..., Tensor]


class seeded_draws(TorchFunctionMode):  # noqa: N801 - used as a context manager, like torch.no_grad
    """Replace torch's random functions inside the `with` block; each call has its own stream of numbers."""

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self._key = key
        self._calls = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in COMPOSED:
            with self:  # torch leaves the block while it calls us
                return _opened(func)(*args, **kwargs)
        handler = HANDLERS.get(func)
        # Whoever brings a generator of their own has said where the numbers come from.
        if handler is None or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        return handler(self, *args, **kwargs)

    def _uniform(self, shape: torch.Size) -> Tensor:
        self._calls += 1
        return uniform(self._key, shape, self._calls)

    def _normal(self, shape: torch.Size) -> Tensor:
        # Box-Muller; 1 - u lies in (0, 1], so the logarithm is finite.
        radius = torch.sqrt(-2 * torch.log1p(-self._uniform(shape)))
        return radius * torch.cos(2 * math.pi * self._uniform(shape))

    def _rand(self, *size: Any, **how: Any) -> Tensor:
        return _made(self._uniform(_shape(size, how)), how)

    def _randn(self, *size: Any, **how: Any) -> Tensor:
        return _made(self._normal(_shape(size, how)), how)

    def _rand_like(self, input: Tensor, **how: Any) -> Tensor:
        return _made(self._uniform(input.shape), {"dtype": input.dtype, **how})

    def _randn_like(self, input: Tensor, **how: Any) -> Tensor:
        return _made(self._normal(input.shape), {"dtype": input.dtype, **how})

    def _bernoulli(self, input: Tensor, p: float | None = None, generator: None = None) -> Tensor:
        return (self._uniform(input.shape) < (input if p is None else p)).to(input.dtype)

    def _bernoulli_(self, input: Tensor, p: float | Tensor = 0.5, generator: None = None) -> Tensor:
        return input.copy_(self._uniform(input.shape) < p)

    def _uniform_(self, input: Tensor, *ends: float, generator: None = None, **named: float) -> Tensor:
        low, high = (*ends, *(0.0, 1.0)[len(ends) :])
        low, high = named.get("from", low), named.get("to", high)
        return input.copy_(low + (high - low) * self._uniform(input.shape))

    def _normal_(self, input: Tensor, mean: float = 0.0, std: float = 1.0, generator: None = None) -> Tensor:
        return input.copy_(mean + std * self._normal(input.shape))

    def _exponential_(self, input: Tensor, lambd: float = 1.0, generator: None = None) -> Tensor:
        return input.copy_(-torch.log1p(-self._uniform(input.shape)) / lambd)

    def _drop_channels(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self._drop(input, *args, **{**kwargs, "channels": True})

    def _drop(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, channels: bool = False
    ) -> Tensor:
        if not training or p == 0.0:
            return input
        shape = input.shape[:2] + (1,) * (input.dim() - 2) if channels else input.shape
        kept = self._uniform(torch.Size(shape)) >= p
        # With p = 1 nothing is kept, and nothing is scaled.
        dropped = input * (kept.to(input.dtype) / (1 - p if p < 1 else 1))
        return input.copy_(dropped) if inplace else dropped

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


COMPOSED = (F.multi_head_attention_forward, F.gumbel_softmax)
"""Functions of torch that are written in Python and draw inside."""
HANDLERS: dict[Callable[..., Any], Handler] = {
    F.dropout: seeded_draws._drop,
    F.dropout1d: seeded_draws._drop_channels,
    F.dropout2d: seeded_draws._drop_channels,
    F.dropout3d: seeded_draws._drop_channels,
    F.scaled_dot_product_attention: seeded_draws._attention,
    torch.rand: seeded_draws._rand,
    torch.randn: seeded_draws._randn,
    torch.rand_like: seeded_draws._rand_like,
    torch.randn_like: seeded_draws._randn_like,
    torch.bernoulli: seeded_draws._bernoulli,
    Tensor.bernoulli: seeded_draws._bernoulli,
    Tensor.bernoulli_: seeded_draws._bernoulli_,
    Tensor.uniform_: seeded_draws._uniform_,
    Tensor.normal_: seeded_draws._normal_,
    Tensor.exponential_: seeded_draws._exponential_,
}


@functools.cache
def _opened(func: Any) -> Callable[..., Any]:
    """A function of torch that does not ask for an override again, so that what it calls is ours."""
    asks = [name for name in func.__globals__ if name.startswith("has_torch_function")]
    open_globals = {**func.__globals__, **dict.fromkeys(asks, lambda *_: False)}
    copy = types.FunctionType(func.__code__, open_globals, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _shape(size: tuple[Any, ...], how: dict[str, Any]) -> torch.Size:
    given = how.pop("size", size)
    return torch.Size(given[0] if len(given) == 1 and not isinstance(given[0], int) else given)


def _made(values: Tensor, how: Mapping[str, Any]) -> Tensor:
    """The numbers in the type and the place that the caller asked for."""
    return values.to(dtype=how.get("dtype") or torch.get_default_dtype(), device=how.get("device"))


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
