"""Values that rounding may have set apart are equal; all others are not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedtempo.support.identity import equal_but_for_rounding, rough_identity_of

torch.manual_seed(0)
WEIGHTS = torch.randn(50, 40)


def network(weights: torch.Tensor) -> nn.Module:
    layer = nn.Linear(40, 50)
    with torch.no_grad():
        layer.weight.copy_(weights)
        layer.bias.zero_()
    return layer


def test_the_last_bits_do_not_count() -> None:
    rounded = WEIGHTS * (1 + 3e-7 * torch.sign(torch.randn(WEIGHTS.shape)))
    assert not torch.equal(rounded, WEIGHTS)
    one, other = (rough_identity_of(network(weights)) for weights in (WEIGHTS, rounded))
    assert one != other and equal_but_for_rounding(one, other) and equal_but_for_rounding(other, one)


CHANGED = {
    "one weight": WEIGHTS.index_put((torch.tensor(3), torch.tensor(4)), torch.tensor(0.5)),
    "rows change places": WEIGHTS.flip(0),
    "another sign": -WEIGHTS,
    "a little longer": 1.001 * WEIGHTS,
}


@pytest.mark.parametrize("change", CHANGED)
def test_any_other_change_counts(change: str) -> None:
    assert not equal_but_for_rounding(rough_identity_of(network(WEIGHTS)), rough_identity_of(network(CHANGED[change])))


def test_everything_but_floats_counts_to_the_bit() -> None:
    first = rough_identity_of({"labels": np.array([1, 2]), "x": np.array([0.1])})
    assert not equal_but_for_rounding(first, rough_identity_of({"labels": np.array([1, 3]), "x": np.array([0.1])}))
    assert not equal_but_for_rounding(
        first, rough_identity_of({"labels": np.array([1, 2]), "x": np.array([0.1], dtype=np.float32)})
    )
    assert not equal_but_for_rounding(first, rough_identity_of({"labels": np.array([1, 2]), "x": np.array([[0.1]])}))


@pytest.mark.parametrize("record", ["", "abc", "abc 1 x", "abc nan nan", "abc 1 2 3"])
def test_a_record_of_another_form_is_like_nothing(record: str) -> None:
    assert not equal_but_for_rounding(record, rough_identity_of(np.array([0.1])))
