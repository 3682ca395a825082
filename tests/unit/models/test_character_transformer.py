"""The character transformer: torch's layers, masks and windows."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedtempo import models
from fedtempo.errors import ConfigError, ModelError
from fedtempo.models.character_transformer import TransformerBlock


@pytest.mark.parametrize("causal", [True, False])
def test_the_transformer_block_is_torchs_encoder_layer(causal):
    block = TransformerBlock(width=8, heads=2, feedforward=16, dropout=0.0, causal=causal).double()
    reference = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double()
    pairs = {
        "self_attn.in_proj_": block.query_key_value,
        "self_attn.out_proj.": block.output,
        "linear1.": block.feedforward[0],
        "linear2.": block.feedforward[3],
        "norm1.": block.attention_norm,
        "norm2.": block.feedforward_norm,
    }
    reference.load_state_dict({a + b: value for a, part in pairs.items() for b, value in part.state_dict().items()})
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64) if causal else None
    torch.testing.assert_close(block(x), reference(x, src_mask=mask), rtol=1e-12, atol=1e-12)


def test_no_position_sees_what_it_predicts():
    model = models.character_transformer(layers=2).eval()
    x = torch.randint(80, (2, 30))
    changed = x.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % 80
    torch.testing.assert_close(model(x)[:, :20], model(changed)[:, :20])
    assert not torch.allclose(model(x)[:, 20:], model(changed)[:, 20:])


def test_the_released_transformer_reads_the_whole_window():
    model = models.character_transformer(layers=1, causal=False, last_only=True).eval()
    assert model(torch.randint(80, (3, 80))).shape == (3, 80)
    with pytest.raises(ConfigError, match="causal must be True"):
        models.character_transformer(causal=False)


def test_a_window_that_is_too_long_is_named():
    with pytest.raises(ModelError, match=r"x must hold at most 80 characters\. Got 81\."):
        models.character_transformer(layers=1)(torch.zeros(1, 81, dtype=torch.int64))
