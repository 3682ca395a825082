"""What single networks promise beyond their sizes: torch's own layers as reference, masks, errors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedtempo import models
from fedtempo.errors import ConfigError, ModelError
from fedtempo.models.character_gru import RecurrentBody
from fedtempo.models.character_transformer import TransformerBlock


def test_the_gru_is_torchs_gru():
    body = RecurrentBody(characters=9, embedding=4, hidden=6, layers=2, last_only=False).double()
    reference = nn.GRU(4, 6, num_layers=2, batch_first=True).double()
    for number, layer in enumerate(body.layers):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(reference, f"{name}_l{number}").data = getattr(layer, name).data
    x = torch.randint(9, (3, 5))
    torch.testing.assert_close(body(x), reference(body.embedding(x))[0], rtol=1e-12, atol=1e-12)


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


@pytest.mark.parametrize("make", [models.character_gru, models.character_transformer])
def test_last_only_is_the_last_of_all_predictions(make):
    every, last = make(layers=2).eval(), make(layers=2, last_only=True).eval()
    last.load_state_dict(every.state_dict())
    x = torch.randint(77, (3, 10))
    torch.testing.assert_close(last(x), every(x)[:, -1])


def test_the_released_transformer_reads_the_whole_window():
    model = models.character_transformer(layers=1, causal=False, last_only=True).eval()
    assert model(torch.randint(80, (3, 80))).shape == (3, 80)
    with pytest.raises(ConfigError, match="causal must be True"):
        models.character_transformer(causal=False)


def test_the_cifar_network_pools_as_same_padding_does():
    pool = next(layer for layer in models.cifar_cnn().body if isinstance(layer, nn.MaxPool2d))
    x = torch.randn(1, 1, 32, 32)
    same = F.max_pool2d(F.pad(x, (0, 1, 0, 1), value=-torch.inf), 3, 2)
    assert torch.equal(pool(x), same)


def test_resnet_reads_nine_of_the_sixteen_last_features_as_released():
    x = torch.randn(2, 3, 32, 32)
    as_released, whole = models.resnet18(), models.resnet18(pool=4)
    whole.load_state_dict(as_released.state_dict())
    last = as_released.body[:-2](x)
    assert last.shape == (2, 512, 4, 4)
    torch.testing.assert_close(as_released.body(x), last[..., :3, :3].mean((2, 3)))
    torch.testing.assert_close(whole.body(x), last.mean((2, 3)))


def test_scaling_a_convolution_before_group_norm_changes_nothing_but_its_gradient():
    model, x = models.group_norm_cnn(), torch.randn(2, 3, 32, 32)
    before = model(x)
    (gradient,) = torch.autograd.grad(before.sum(), model.body[1].weight)
    with torch.no_grad():
        model.body[1].weight.mul_(2)
    after = model(x)
    (halved,) = torch.autograd.grad(after.sum(), model.body[1].weight)
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(2 * halved, gradient, rtol=1e-2, atol=1e-2)


def test_flat_and_square_pixels_are_the_same_images():
    model = models.convnet2().eval()
    x = torch.randn(2, 1, 28, 28)
    assert torch.equal(model(x), model(x.flatten(1)))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: models.mlp(outputs=0), "outputs must be positive ints. Got [0]."),
        (lambda: models.mlp(dropout=1.0), "dropout must be a fraction in [0, 1). Got 1.0."),
        (lambda: models.cnn(image=(28, 28)), "image must be (channels, height, width). Got (28, 28)."),
        (lambda: models.cnn(image=(1, 5, 5)), "image must be large enough for the convolutions. Got (1, 5, 5)."),
        (lambda: models.cnn(padding=-1), "padding must be an int >= 0. Got -1."),
        (lambda: models.cifar_cnn(True), "outputs must be an int >= 1. Got True."),
        (lambda: models.resnet18(groups=3), "groups must be a divisor of 64. Got 3."),
        (lambda: models.group_norm_cnn(groups=3), "groups must be a divisor of (8, 16). Got 3."),
        (lambda: models.resnet18(pool=5), "pool must be 3 or 4. Got 5."),
        (lambda: models.character_gru(hidden=0), "hidden must be an int >= 1. Got 0."),
        (lambda: models.character_transformer(heads=3), "heads must be a divisor of width (128). Got 3."),
    ],
)
def test_a_size_outside_its_rule_is_named(make, sentence):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == sentence


def test_a_window_that_is_too_long_is_named():
    with pytest.raises(ModelError, match=r"x must hold at most 80 characters\. Got 81\."):
        models.character_transformer(layers=1)(torch.zeros(1, 81, dtype=torch.int64))
