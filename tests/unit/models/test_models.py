"""The papers' networks: sizes worked out by hand, two parts, seeded weights, and lanes that train side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from fedtempo import models
from fedtempo.client.network import Network, tensors_of
from fedtempo.errors import ConfigError
from fedtempo.models.weights import build
from fedtempo.tasks import as_task
from tests.slow import slow_but

LANES, ROWS = 2, 2


@dataclass(frozen=True)
class Case:
    """A model at the paper's size, what goes in, what comes out, and the parameters counted by hand."""

    make: Callable[[], nn.Module]
    input: tuple[int, ...]
    output: tuple[int, ...]
    parameters: int
    vocabulary: int = 0
    """Inputs are ints below this; 0 means real numbers."""


def convolution(channels_in: int, channels: int, kernel: int, bias: bool = True) -> int:
    return channels_in * channels * kernel * kernel + channels * bias


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def gru(inputs: int, hidden: int) -> int:
    return 3 * hidden * (inputs + hidden) + 2 * 3 * hidden


def residual_stage(channels_in: int, channels: int, projected: bool) -> int:
    convolutions = convolution(channels_in, channels, 3, False) + 3 * convolution(channels, channels, 3, False)
    shortcut = convolution(channels_in, channels, 1, False) + 2 * channels if projected else 0
    return convolutions + 4 * 2 * channels + shortcut


def transformer_block(width: int, feedforward: int) -> int:
    return 4 * linear(width, width) + linear(width, feedforward) + linear(feedforward, width) + 2 * 2 * width


CASES = {
    # 784 * 200 + 200 + 200 * 10 + 10
    "mlp": Case(models.mlp, (1, 28, 28), (10,), 159_010),
    # 10,000 * 500 + 500
    "logistic_regression": Case(models.logistic_regression, (10_000,), (500,), 5_000_500),
    "softmax_regression": Case(lambda: models.softmax_regression(60, 10), (60,), (10,), 610),
    # 28 -> 26 -> 13 -> 11 -> 5
    "cnn": Case(
        models.cnn,
        (1, 28, 28),
        (10,),
        convolution(1, 32, 3) + convolution(32, 64, 3) + linear(64 * 5 * 5, 512) + linear(512, 10),
    ),
    # 28 -> 13 -> 6: a stride reaches the row that pooling leaves out
    "cnn with strides": Case(
        lambda: models.cnn(pool=False),
        (1, 28, 28),
        (10,),
        convolution(1, 32, 3) + convolution(32, 64, 3) + linear(64 * 6 * 6, 512) + linear(512, 10),
    ),
    # 832 + 64 + 51,264 + 128 + 6,424,576 + 127,038; 28 -> 28 -> 14 -> 14 -> 7
    "convnet2": Case(models.convnet2, (1, 28, 28), (62,), 6_603_902),
    # 320 + 18,496 + 819,712 + 31,806
    "femnist_cnn": Case(models.femnist_cnn, (1, 28, 28), (62,), 870_334),
    # 4,864 + 102,464 + 1,573,248 + 73,920 + 1,930; 32 -> 16 -> 8
    "cifar_cnn": Case(models.cifar_cnn, (3, 32, 32), (10,), 1_756_426),
    # 640 + 3 * 36,928 + 3,575; 28 -> 14 -> 7 -> 3 -> 1
    "omniglot_cnn": Case(models.omniglot_cnn, (1, 28, 28), (55,), 114_999),
    # 216 + 16 + 1,152 + 32 + 10,250; 32 -> 16 -> 8
    "group_norm_cnn": Case(models.group_norm_cnn, (3, 32, 32), (10,), 11_666),
    # the stem 1,728 + 128; 147,968 + 525,568 + 2,099,712 + 8,393,728; the head 5,130
    "resnet18": Case(models.resnet18, (3, 32, 32), (10,), 11_173_962),
    # 616 + 204,288 + 394,752 + 19,789
    "character_gru": Case(models.character_gru, (20,), (20, 77), 619_445, vocabulary=77),
    # 10,240 + 10,240 + 6 * 198,272 + 10,320
    "character_transformer": Case(models.character_transformer, (20,), (20, 80), 1_220_432, vocabulary=80),
    # 3,200 + 8,192 + 2 * 49,984 + 128 + 3,200
    "gpt_tiny": Case(lambda: models.gpt_tiny(50), (20,), (20, 50), 114_688, vocabulary=50),
}
named = pytest.mark.parametrize("name", CASES)
LARGE = [name for name in CASES if name in ("resnet18", "convnet2")]
trained = pytest.mark.parametrize(
    "name",
    slow_but(
        [name for name in CASES if name not in LARGE],
        CASES,
        "millions of weights; GroupNorm and convolutions run every time",
    ),
)


def batch_for(case: Case, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """A batch per lane, with a dropout key per lane; the same on every call."""
    draw = torch.Generator().manual_seed(7)
    shape = (LANES, ROWS, *case.input)
    x = torch.randint(case.vocabulary, shape, generator=draw) if case.vocabulary else torch.randn(shape, generator=draw)
    y = torch.randint(case.output[-1], (LANES, ROWS, *case.output[:-1]), generator=draw)
    keys = torch.tensor([11, 12])
    return {"x": x if case.vocabulary else x.to(dtype), "y": y, "_key": keys}


def lanes_of(case: Case) -> list[dict[str, Tensor]]:
    return [tensors_of(build(case.make(), seed)[0], torch.float64, "cpu") for seed in range(LANES)]


def stacked(trees: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def step(
    network: Network, params: dict[str, Tensor], batch: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The gradient and the buffers after one training step, as a backend computes them."""

    def loss(weights: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        buffers = {name: params[name].clone() for name in network.buffers}
        outputs = network.forward_updating({**weights, **buffers}, batch, train=True)
        return as_task(None, batch["y"]).losses(outputs, batch["y"]).mean(), buffers

    return grad(loss, has_aux=True)({name: params[name] for name in network.parameters})


def test_every_model_of_the_dict_is_tested_here_or_in_its_own_file():
    assert set(models.MODELS) - set(CASES) <= {"bert_tiny", "gin", "quadratic", "word_average"}
    assert all(models.MODELS[name] is getattr(models, name) for name in models.MODELS)
    assert set(models.__all__) == {"MODELS", *models.MODELS}


def test_helpers_agree_with_the_sums_in_the_comments():
    assert CASES["resnet18"].parameters == 1_728 + 128 + 147_968 + 525_568 + 2_099_712 + 8_393_728 + 5_130
    stages = [residual_stage(64, 64, False)] + [residual_stage(c // 2, c, True) for c in (128, 256, 512)]
    assert stages == [147_968, 525_568, 2_099_712, 8_393_728]
    assert (gru(8, 256), gru(256, 256), transformer_block(128, 512)) == (204_288, 394_752, 198_272)


@named
def test_parameters_are_as_counted_by_hand(name):
    case = CASES[name]
    assert sum(p.numel() for p in case.make().parameters()) == case.parameters


@named
def test_outputs_have_the_shape_and_are_the_head_of_the_body(name):
    case = CASES[name]
    model = build(case.make(), 0)[0].eval()
    x = batch_for(case, torch.float32)["x"][0]
    outputs = model(x)
    assert outputs.shape == (ROWS, *case.output)
    assert torch.equal(outputs, model.head(model.body(x)))


@named
def test_the_seed_decides_all_weights(name):
    case = CASES[name]
    model = case.make()
    torch.manual_seed(99)
    first, again, other = (build(model, seed)[0].state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    made_inside = build(case.make, 1)[0].state_dict()
    assert first.keys() == made_inside.keys()
    drawn = [key for key, value in first.items() if value.is_floating_point() and value.std() > 0]
    assert drawn
    assert all(not torch.equal(first[key], other[key]) for key in drawn)


@trained
def test_lanes_side_by_side_have_the_gradients_and_buffers_of_lanes_one_by_one(name):
    case = CASES[name]
    network = Network(case.make())
    lanes, batch = lanes_of(case), batch_for(case)
    alone = [step(network, params, {k: v[lane] for k, v in batch.items()}) for lane, params in enumerate(lanes)]
    together = vmap(lambda params, rows: step(network, params, rows))(stacked(lanes), batch)
    for part in (0, 1):
        for key, value in together[part].items():
            expected = torch.stack([lane[part][key] for lane in alone])
            torch.testing.assert_close(
                value, expected, rtol=1e-12, atol=1e-12, msg=lambda text, key=key: f"{key}: {text}"
            )
    assert all(value.abs().sum() > 0 for value in together[0].values()), "a parameter has no gradient"


@trained
def test_evaluation_side_by_side_is_evaluation_one_by_one(name):
    case = CASES[name]
    network = Network(case.make())
    lanes, batch = lanes_of(case), batch_for(case)
    together = vmap(network.forward)(stacked(lanes), batch)
    for lane, params in enumerate(lanes):
        alone = network.forward(params, {k: v[lane] for k, v in batch.items()})
        torch.testing.assert_close(together[lane], alone, rtol=1e-12, atol=1e-12)


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
