"""A recorded ReLU goes after the max-pooling that follows it, and no number changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedtempo.client.recording import Recording, record

Layers = Callable[[Tensor], Tensor]


def _pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(x), 2)


def _overlapping(x: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(x), 3, stride=1, padding=1)


def _twice(x: Tensor) -> Tensor:
    return _pooled(_pooled(x) - 0.1)


def _normalised(x: Tensor) -> Tensor:
    mean, spread = x.detach().mean((0, 2, 3)), x.detach().amax((0, 2, 3))
    return _pooled(F.batch_norm(x, mean, spread, training=True))  # writes over both


def _read_again(x: Tensor) -> Tensor:
    positive = F.relu(x)
    return F.max_pool2d(positive, 2) + positive.mean()


def _written_over(x: Tensor) -> Tensor:
    return _pooled(x).mul_(2.0)


def _smooth(x: Tensor) -> Tensor:
    return F.max_pool2d(F.elu(x), 2)


def _recorded(layers: Layers, x: Tensor) -> tuple[Recording, list[Tensor]]:
    def gradient(x: Tensor) -> list[Tensor]:
        leaf = x.detach().requires_grad_()
        value = (layers(leaf) ** 2).sum()
        return [value.detach(), *torch.autograd.grad(value, [leaf])]

    recording = record(gradient, [torch.ones_like(x)])
    assert isinstance(recording, Recording)
    return recording, gradient(x)


class _Relus(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes how many numbers each ReLU gets."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.relu.default:
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


def _sizes_before_relu(recording: Recording, x: Tensor) -> list[int]:
    with _Relus() as relus:
        recording([x])
    return relus.sizes


@pytest.mark.parametrize("layers", [_pooled, _overlapping, _twice, _normalised])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_swapped_operations_give_the_same_bits(layers: Layers, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    # Zeros and windows of negative numbers only are where the two orders choose different places.
    x = (torch.randn(4, 3, 8, 8) - 0.8).clamp_min(-1.0).round(decimals=1).contiguous(memory_format=layout)
    recording, expected = _recorded(layers, x)
    for got, want in zip(recording([x]), expected, strict=True):
        assert torch.equal(got, want)


def test_each_relu_gets_the_pooled_numbers() -> None:
    x = torch.randn(4, 3, 8, 8)
    assert _sizes_before_relu(_recorded(_twice, x)[0], x) == [4 * 3 * 4 * 4, 4 * 3 * 2 * 2]
    assert _sizes_before_relu(_recorded(_normalised, x)[0], x) == [4 * 3 * 4 * 4]


@pytest.mark.parametrize("layers", [_read_again, _written_over, _smooth])
def test_operations_stay_in_order_where_somebody_would_see_the_difference(layers: Layers) -> None:
    x = torch.randn(4, 3, 8, 8)
    recording, expected = _recorded(layers, x)
    assert all(torch.equal(got, want) for got, want in zip(recording([x]), expected, strict=True))
    assert _sizes_before_relu(recording, x) in ([], [x.numel()])
