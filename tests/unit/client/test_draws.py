"""Random numbers by seed: right rate, right scale, a mask per client, the same under vmap and for attention."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import vmap

from fedtempo.client.draws import seeded_draws, uses_dropout
from fedtempo.errors import ModelError


def dropped(key: int, shape: tuple[int, ...] = (4000,), p: float = 0.25) -> torch.Tensor:
    with seeded_draws(torch.tensor(key)):
        return F.dropout(torch.ones(shape), p)


def test_rate_and_scale() -> None:
    output = dropped(1)
    assert output.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert abs((output == 0).float().mean() - 0.25) < 4 * (0.25 * 0.75 / 4000) ** 0.5


def test_a_key_decides_and_calls_differ() -> None:
    assert torch.equal(dropped(1), dropped(1))
    assert not torch.equal(dropped(1), dropped(2))
    with seeded_draws(torch.tensor(1)):
        first, second = F.dropout(torch.ones(100), 0.5), F.dropout(torch.ones(100), 0.5)
    assert not torch.equal(first, second)


def test_lanes_have_their_own_masks() -> None:
    def one(key: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        with seeded_draws(key):
            return F.dropout(x, 0.5)

    together = vmap(one)(torch.tensor([1, 2]), torch.ones(2, 50))
    assert torch.equal(together[1], one(torch.tensor(2), torch.ones(50)))
    assert not torch.equal(together[0], together[1])


def test_whole_channels() -> None:
    with seeded_draws(torch.tensor(3)):
        output = nn.Dropout2d(0.5)(torch.ones(2, 8, 3, 3))
    assert ((output == 0).flatten(2).all(-1) | (output == 2).flatten(2).all(-1)).all()


def test_evaluation_and_rate_zero_change_nothing() -> None:
    x = torch.randn(5)
    with seeded_draws(torch.tensor(0)):
        assert F.dropout(x, 0.5, training=False) is x
        assert F.dropout(x, 0.0) is x


@pytest.mark.parametrize("causal", [False, True])
def test_attention_without_dropout_is_torchs(causal: bool) -> None:
    q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.float64) for _ in range(3))
    with seeded_draws(torch.tensor(0)):
        ours = F.scaled_dot_product_attention(q, k, v, dropout_p=1e-12, is_causal=causal)
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, is_causal=causal))


def test_masks_of_attention() -> None:
    q, k, v = (torch.randn(1, 2, 4, 3, dtype=torch.float64) for _ in range(3))
    for mask in ((torch.rand(4, 4) > 0.3) | torch.eye(4, dtype=torch.bool), torch.randn(4, 4, dtype=torch.float64)):
        with seeded_draws(torch.tensor(0)):
            ours = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=1e-12)
        torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


def test_what_cannot_be_seeded_is_refused() -> None:
    with pytest.raises(ModelError, match="dropout=0"):
        uses_dropout(nn.LSTM(2, 2, num_layers=2, dropout=0.5))
    with pytest.raises(ModelError, match=r"nn\.Dropout"):
        uses_dropout(nn.Sequential(nn.AlphaDropout(0.5)))
    assert uses_dropout(nn.Sequential(nn.Dropout(0.1)))
    assert not uses_dropout(nn.Sequential(nn.Dropout(0.0), nn.Linear(2, 2)))


DRAWS = {
    "rand": lambda x: torch.rand(4, 3, dtype=x.dtype),
    "rand of a shape": lambda x: torch.rand(x.shape, dtype=x.dtype),
    "rand_like": torch.rand_like,
    "randn": lambda x: torch.randn((4, 3), dtype=x.dtype),
    "randn_like": torch.randn_like,
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.3)),
    "bernoulli_": lambda x: x.new_empty(4, 3).bernoulli_(0.3),
    "uniform_": lambda x: torch.empty_like(x).uniform_(-1, 2),
    "normal_": lambda x: torch.empty_like(x).normal_(1.0, 2.0),
    "gumbel": lambda x: F.gumbel_softmax(x, tau=0.5),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5)[0],
}


@pytest.mark.parametrize("draw", DRAWS)
def test_whatever_a_model_draws_is_decided_by_the_key_alone(draw: str) -> None:
    x = torch.linspace(0, 1, 12, dtype=torch.float64).reshape(4, 3)

    def one(key: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        with seeded_draws(key):
            return DRAWS[draw](x)

    before = torch.get_rng_state()
    found = [one(torch.tensor(key), x) for key in (1, 2)]
    assert torch.equal(before, torch.get_rng_state()), "torch's own generator was not asked"
    assert torch.equal(found[0], one(torch.tensor(1), x))
    assert not torch.equal(*found)
    together = vmap(one)(torch.tensor([1, 2]), torch.stack([x, x]))
    assert torch.allclose(together, torch.stack(found), rtol=0, atol=1e-12)


def test_noise_has_its_mean_and_deviation() -> None:
    with seeded_draws(torch.tensor(3)):
        normal, between = torch.randn(20_000, dtype=torch.float64), torch.empty(20_000).uniform_(-1, 3)
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.03
    assert abs(between.mean() - 1) < 0.05
    assert -1 <= between.min() < between.max() <= 3


def test_torchs_own_attention_layer_drops_by_the_key() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.4, batch_first=True).double()
    x = torch.randn(3, 5, 8, dtype=torch.float64)

    def one(key: int, x: torch.Tensor) -> torch.Tensor:
        with seeded_draws(torch.tensor(key)):
            return layer(x)

    before = torch.get_rng_state()
    assert torch.equal(one(1, x), one(1, x))
    assert not torch.equal(one(1, x), one(2, x))
    assert torch.allclose(one(1, x)[:2], one(1, x[:2]), rtol=0, atol=1e-12), "rows that follow change nothing"
    assert torch.equal(before, torch.get_rng_state())
    layer.eval()
    assert torch.allclose(one(1, x), layer(x))


def test_a_rate_of_one_drops_everything() -> None:
    assert dropped(1, p=1.0).tolist() == [0.0] * 4000


def test_dropout_in_place_changes_what_it_is_given() -> None:
    x = torch.ones(100)
    with seeded_draws(torch.tensor(1)):
        F.dropout(x, 0.5, inplace=True)
    assert torch.equal(x, dropped(1, (100,), 0.5))
