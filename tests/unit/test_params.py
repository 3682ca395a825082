"""Named tensors: arithmetic, norms, selectors."""

from __future__ import annotations

import torch

from fedtempo.params import all_finite


def test_a_sum_that_overflows_is_still_finite() -> None:
    assert all_finite([torch.full((4,), 3e38)])
    assert all_finite([torch.full((4,), 1e308, dtype=torch.float64), torch.arange(3)])
    assert not all_finite([torch.zeros(3), torch.tensor([1.0, float("inf"), float("-inf")])])
    assert not all_finite([torch.tensor([float("nan")])])
