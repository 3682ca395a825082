"""Sums that do not depend on order and grouping."""

import math

import numpy as np
import pytest
import torch

from fedtempo.server.exact_sums import Exact, ExactNumber, empty_sum, sum_of_rows


def _summed(rows: torch.Tensor, weights: list[float]) -> Exact:
    total = empty_sum(rows[0])
    for row, weight in zip(rows, weights, strict=True):
        total.add(row, weight)
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_the_bits_do_not_depend_on_order_and_grouping(dtype: torch.dtype, scale: float) -> None:
    random = torch.Generator().manual_seed(3)
    rows = (scale * torch.randn(40, 17, 1001, generator=random, dtype=torch.float64)).to(dtype)
    weights = torch.randint(1, 300, (40,), generator=random).tolist()
    one_by_one = _summed(rows, weights)
    shuffled = torch.randperm(40, generator=random)
    backwards = _summed(rows[shuffled], [weights[i] for i in shuffled])
    at_once = sum_of_rows(rows, torch.tensor(weights, dtype=torch.float64))
    halves = _summed(rows[:13], weights[:13])
    halves.merge(_summed(rows[13:], weights[13:]))
    for other in (backwards, at_once, halves):
        assert torch.equal(one_by_one.high, other.high)
        assert torch.equal(one_by_one.low, other.low)


def test_the_sum_is_as_good_as_the_best_float64() -> None:
    random = np.random.default_rng(5)
    numbers = random.normal(size=(1000, 3)) * 10.0 ** random.integers(-8, 3, size=(1000, 3))
    total = _summed(torch.from_numpy(numbers), [1.0] * 1000).value
    for column in range(3):
        assert abs(total[column].item() - math.fsum(numbers[:, column])) <= 1000 * 2.0**-59 + 1e-16 * abs(total[column])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_mean_made_in_pieces_has_the_bits_of_one_made_at_once(dtype: torch.dtype) -> None:
    rows = torch.randn(3, 7, 10_007, generator=torch.Generator().manual_seed(4))
    total = _summed(rows, [3.0, 1.0, 5.0])
    expected = ((total.high + total.low) / 9.0).to(dtype)
    assert total.mean(9.0, dtype).dtype == dtype
    assert torch.equal(total.mean(9.0, dtype), expected)
    total.add(torch.full_like(rows[0], math.nan))
    assert total.mean(9.0, dtype).isnan().all()


def test_the_layout_of_an_upload_does_not_matter() -> None:
    image = torch.randn(8, 3, 5, 5)
    total, other = empty_sum(image), empty_sum(image)
    total.add(image, 2.5)
    other.add(image.to(memory_format=torch.channels_last), 2.5)
    assert torch.equal(total.value, other.value)
    assert other.value.is_contiguous()


def test_numbers_beyond_the_exact_range_still_add_up() -> None:
    total = empty_sum(torch.zeros(2))
    for value in (1e30, 3.0, -1e30):
        total.add(torch.tensor([value, 2.0], dtype=torch.float64))
    assert total.value[1] == 6.0
    assert math.isfinite(total.value[0])
    total.add(torch.tensor([math.inf, 0.0]))
    assert not math.isfinite(total.value[0])


def test_single_numbers_add_in_any_order() -> None:
    numbers = np.random.default_rng(0).normal(size=999)
    forward = ExactNumber()
    for number in numbers:
        forward = forward.plus(number.reshape(1))
    assert forward == ExactNumber().plus(numbers[::-1])
    assert forward == ExactNumber().plus(numbers[:10]).merged(ExactNumber().plus(numbers[10:]))
    assert abs(forward.value - math.fsum(numbers)) < 1e-15
