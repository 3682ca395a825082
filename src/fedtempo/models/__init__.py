"""The papers' networks: plain modules with a `body` and a `head`."""

from fedtempo.models.cnn import cnn
from fedtempo.models.mlp import mlp, softmax_regression

MODELS = {"mlp": mlp, "cnn": cnn, "softmax_regression": softmax_regression}

__all__ = ["MODELS", "cnn", "mlp", "softmax_regression"]
