"""Recordings replay the same operations on other numbers, and refuse what would not be the same."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from fedtempo.client.recording import Recording, Refusal, record, same

X, Y = torch.arange(6.0).reshape(2, 3), torch.tensor([[1.0, -2.0, 0.5], [3.0, 1.0, -1.0]])


def views(x: Tensor, y: Tensor) -> list[Tensor]:
    return [torch.cat([x.t().t(), y.t().detach().t()]).sum(1), x]


def in_place(x: Tensor, y: Tensor) -> list[Tensor]:
    copy = x.clone()
    copy[0].add_(y[0])
    return [copy, copy + y]


def several_results(x: Tensor, y: Tensor) -> list[Tensor]:
    low, _ = (x * y).sort(1)
    one, other = torch.stack([low, x]).unbind(0)
    return [one - other]


def derivatives(x: Tensor, y: Tensor) -> list[Tensor]:
    leaf = x.detach().requires_grad_()
    return list(torch.autograd.grad((leaf.sin() * y).sum(), [leaf]))


@pytest.mark.parametrize("function", [views, in_place, several_results, derivatives])
def test_a_recording_computes_what_the_function_computes(function: Callable[..., list[Tensor]]) -> None:
    recording = record(function, [X, Y])
    assert isinstance(recording, Recording)
    for x, y in ((X, Y), (Y, X), (-3 * X, Y.square())):
        assert all(torch.equal(a, b) for a, b in zip(recording([x, y]), function(x, y), strict=True))


ELSEWHERE = torch.ones(3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: [x * x.sum().item()],
        lambda x, y: [x + 1] if bool((x > 1).any()) else [x],
        lambda x, y: [x[x > 0]],
        lambda x, y: [x + torch.rand(3)],
        lambda x, y: [x + ELSEWHERE],
        lambda x, y: [torch.add(input=x, other=y, out=ELSEWHERE.repeat(2, 1))],
        lambda x, y: [ELSEWHERE],
    ],
)
def test_what_cannot_be_repeated_is_refused(function: Callable[..., list[Tensor]]) -> None:
    assert isinstance(record(function, [X, Y]), Refusal)


def test_one_tensor_for_two_inputs_is_refused() -> None:
    assert isinstance(record(views, [X, X]), Refusal)


def test_memory_of_what_is_not_needed_any_more_is_freed() -> None:
    def chain(x: Tensor) -> list[Tensor]:
        for _ in range(50):
            x = x + x
        return [x]

    recording = record(chain, [X])
    assert isinstance(recording, Recording) and len(recording._registers) < 10


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x, y: [x * x.tolist()[0][0]], "reads numbers out of a tensor (tolist)"),
        (lambda x, y: [x * float(x.numpy()[0, 0])], "reads numbers out of a tensor (numpy)"),
        (lambda x, y: [x * random.random()], "draws from Python's or numpy's random generator"),
        (lambda x, y: [x * float(np.random.rand())], "draws from Python's or numpy's random generator"),
        (lambda x, y: [x + torch.rand(3)], "draws random numbers"),
        (lambda x, y: [x[x > 0]], "makes a tensor whose shape depends on numbers"),
    ],
)
def test_the_reason_can_be_read(function: Callable[..., list[Tensor]], reason: str) -> None:
    refused = record(function, [X, Y])
    assert isinstance(refused, Refusal) and refused.reason.startswith(reason)


def test_ones_that_only_products_read_are_made_once() -> None:
    recording = record(lambda x, y: [x * torch.ones_like(y), torch.zeros_like(x) + y], [X, Y])
    assert isinstance(recording, Recording) and len(recording._program) == 2
    assert all(torch.equal(got, given) for got, given in zip(recording([Y, X]), [Y, X], strict=True))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: [torch.ones_like(x)],
        lambda x, y: [torch.ones_like(x).t()],
        lambda x, y: [torch.zeros_like(x).add_(y)],
    ],
)
def test_a_result_that_somebody_may_write_over_is_made_anew_each_time(function: Callable[..., list[Tensor]]) -> None:
    recording = record(function, [X, Y])
    assert isinstance(recording, Recording)
    (expected,) = function(X, Y)
    recording([X, Y])[0].mul_(7.0)
    assert torch.equal(recording([X, Y])[0], expected)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ([NAN, 1.0], [NAN, 1.0], True),
        ([NAN], [0.0], False),
        ([INF], [torch.finfo(torch.float32).max], False),
        ([INF, -INF], [INF, -INF], True),
        ([INF], [-INF], False),
        ([NAN], [INF], False),
    ],
)
def test_same_means_equal_to_the_bit(one: list[float], other: list[float], equal: bool) -> None:
    assert same([torch.tensor(one)], [torch.tensor(other)]) is equal
