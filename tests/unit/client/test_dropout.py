"""Dropout by seed: right rate, right scale, a mask per client, the same under vmap and for attention."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import vmap

from fedtempo.client.dropout import seeded_dropout, uses_dropout
from fedtempo.errors import ModelError


def dropped(key: int, shape: tuple[int, ...] = (4000,), p: float = 0.25) -> torch.Tensor:
    with seeded_dropout(torch.tensor(key)):
        return F.dropout(torch.ones(shape), p)


def test_rate_and_scale() -> None:
    output = dropped(1)
    assert output.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert abs((output == 0).float().mean() - 0.25) < 4 * (0.25 * 0.75 / 4000) ** 0.5


def test_a_key_decides_and_calls_differ() -> None:
    assert torch.equal(dropped(1), dropped(1))
    assert not torch.equal(dropped(1), dropped(2))
    with seeded_dropout(torch.tensor(1)):
        first, second = F.dropout(torch.ones(100), 0.5), F.dropout(torch.ones(100), 0.5)
    assert not torch.equal(first, second)


def test_lanes_have_their_own_masks() -> None:
    def one(key: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        with seeded_dropout(key):
            return F.dropout(x, 0.5)

    together = vmap(one)(torch.tensor([1, 2]), torch.ones(2, 50))
    assert torch.equal(together[1], one(torch.tensor(2), torch.ones(50)))
    assert not torch.equal(together[0], together[1])


def test_whole_channels() -> None:
    with seeded_dropout(torch.tensor(3)):
        output = nn.Dropout2d(0.5)(torch.ones(2, 8, 3, 3))
    assert ((output == 0).flatten(2).all(-1) | (output == 2).flatten(2).all(-1)).all()


def test_evaluation_and_rate_zero_change_nothing() -> None:
    x = torch.randn(5)
    with seeded_dropout(torch.tensor(0)):
        assert F.dropout(x, 0.5, training=False) is x
        assert F.dropout(x, 0.0) is x


@pytest.mark.parametrize("causal", [False, True])
def test_attention_without_dropout_is_torchs(causal: bool) -> None:
    q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.float64) for _ in range(3))
    with seeded_dropout(torch.tensor(0)):
        ours = F.scaled_dot_product_attention(q, k, v, dropout_p=1e-12, is_causal=causal)
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, is_causal=causal))


def test_masks_of_attention() -> None:
    q, k, v = (torch.randn(1, 2, 4, 3, dtype=torch.float64) for _ in range(3))
    for mask in ((torch.rand(4, 4) > 0.3) | torch.eye(4, dtype=torch.bool), torch.randn(4, 4, dtype=torch.float64)):
        with seeded_dropout(torch.tensor(0)):
            ours = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=1e-12)
        torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


def test_what_cannot_be_seeded_is_refused() -> None:
    with pytest.raises(ModelError, match="dropout=0"):
        uses_dropout(nn.LSTM(2, 2, num_layers=2, dropout=0.5))
    with pytest.raises(ModelError, match=r"nn\.Dropout"):
        uses_dropout(nn.Sequential(nn.AlphaDropout(0.5)))
    assert uses_dropout(nn.Sequential(nn.Dropout(0.1)))
    assert not uses_dropout(nn.Sequential(nn.Dropout(0.0), nn.Linear(2, 2)))
