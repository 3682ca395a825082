"""The papers' networks: plain modules with a `body` and a `head`."""

from collections.abc import Callable

from torch import nn

from fedtempo.models.bert import bert_tiny
from fedtempo.models.character_gru import character_gru
from fedtempo.models.character_transformer import character_transformer
from fedtempo.models.cifar_cnn import cifar_cnn
from fedtempo.models.cnn import cnn
from fedtempo.models.convnet2 import convnet2
from fedtempo.models.femnist_cnn import femnist_cnn
from fedtempo.models.gin import gin
from fedtempo.models.gpt_tiny import gpt_tiny
from fedtempo.models.group_norm_cnn import group_norm_cnn
from fedtempo.models.mlp import logistic_regression, mlp, softmax_regression
from fedtempo.models.omniglot_cnn import omniglot_cnn
from fedtempo.models.quadratic import quadratic
from fedtempo.models.resnet import resnet18
from fedtempo.models.word_average import word_average

MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "softmax_regression": softmax_regression,
    "logistic_regression": logistic_regression,
    "cnn": cnn,
    "convnet2": convnet2,
    "femnist_cnn": femnist_cnn,
    "cifar_cnn": cifar_cnn,
    "omniglot_cnn": omniglot_cnn,
    "gpt_tiny": gpt_tiny,
    "group_norm_cnn": group_norm_cnn,
    "resnet18": resnet18,
    "character_gru": character_gru,
    "character_transformer": character_transformer,
    "bert_tiny": bert_tiny,
    "word_average": word_average,
    "gin": gin,
    "quadratic": quadratic,
}

__all__ = [
    "MODELS",
    "bert_tiny",
    "character_gru",
    "character_transformer",
    "cifar_cnn",
    "cnn",
    "convnet2",
    "femnist_cnn",
    "gin",
    "gpt_tiny",
    "group_norm_cnn",
    "logistic_regression",
    "mlp",
    "omniglot_cnn",
    "quadratic",
    "resnet18",
    "softmax_regression",
    "word_average",
]
