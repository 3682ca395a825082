"""Steps in one pass: the numbers of torch's single operations, over weights of any layout."""

from __future__ import annotations

import pytest
import torch

from fedtempo.client.kernels import adam_step, decayed_step, in_one_row, momentum_step

SHAPES = [(1,), (13,), (1001,), (3, 5), (4, 3, 2, 2)]


def drawn(shape: tuple[int, ...], count: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(shape))
    return [torch.randn(shape, generator=generator).to(dtype) for _ in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_decay_and_descent_in_one_pass_have_the_bits_of_two(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    weight, gradient = drawn(shape, 2, dtype)
    two = torch.sub(weight, torch.add(gradient, weight, alpha=0.013), alpha=0.37)
    decayed_step({"w": weight}, {"w": gradient}, 0.37, 0.013)
    assert torch.equal(weight, two)


@pytest.mark.parametrize("turned", ["weight", "gradient", "both", "expanded"])
def test_the_layout_in_memory_does_not_count(turned: str) -> None:
    weight, gradient = drawn((4, 3, 5, 5), 2)
    if turned == "expanded":
        gradient = gradient[:1].expand(4, 3, 5, 5)
    expected = torch.sub(weight, torch.add(gradient, weight, alpha=0.1), alpha=0.5)
    last = torch.channels_last
    weight = weight.contiguous(memory_format=last) if turned in ("weight", "both") else weight
    gradient = gradient.contiguous(memory_format=last) if turned in ("gradient", "both") else gradient
    assert in_one_row(weight, gradient) == (turned == "both")
    decayed_step({"w": weight}, {"w": gradient}, 0.5, 0.1)
    assert torch.equal(weight, expected)


@pytest.mark.parametrize(("decay", "nesterov"), [(0.0, False), (0.02, False), (0.02, True)])
def test_momentum_is_torchs(decay: float, nesterov: bool) -> None:
    weight, *gradients = drawn((7, 3), 4, torch.float64)
    twin = torch.nn.Parameter(weight.clone())
    other = torch.optim.SGD([twin], 0.1, 0.9, weight_decay=decay, nesterov=nesterov)
    velocity = {"w": torch.zeros_like(weight)}
    for gradient in gradients:
        twin.grad = gradient.clone()
        other.step()
        assert momentum_step({"w": weight}, {"w": gradient}, velocity, 0.1, decay, 0.9, nesterov)
        torch.testing.assert_close(weight, twin.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_is_torchs(decoupled: bool) -> None:
    weight, *gradients = drawn((7, 3), 5, torch.float64)
    twin = torch.nn.Parameter(weight.clone())
    other = (torch.optim.AdamW if decoupled else torch.optim.Adam)([twin], 0.1, (0.8, 0.95), 1e-6, weight_decay=0.03)
    moments = {"w": torch.zeros_like(weight)}, {"w": torch.zeros_like(weight)}
    for count, gradient in enumerate(gradients, 1):
        twin.grad = gradient.clone()
        other.step()
        assert adam_step({"w": weight}, {"w": gradient}, moments, count, 0.1, (0.8, 0.95), 1e-6, 0.03, decoupled)
        torch.testing.assert_close(weight, twin.detach(), rtol=1e-12, atol=1e-12)


def test_a_kernel_that_cannot_take_one_tensor_writes_over_none() -> None:
    weights = {"w": torch.ones(3), "short": torch.ones(3, dtype=torch.bfloat16)}
    gradient = {name: torch.ones_like(weight) for name, weight in weights.items()}
    state = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    assert not momentum_step(weights, gradient, state, 0.1, 0.0, 0.9, False)
    assert not adam_step(weights, gradient, (state, state), 1, 0.1, (0.9, 0.99), 1e-8, 0.0, False)
    assert all(bool((t == 1).all()) for t in weights.values())
    assert all(bool((t == 0).all()) for t in state.values())
