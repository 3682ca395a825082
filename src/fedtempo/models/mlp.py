"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from fedtempo.errors import is_count, require
from fedtempo.models.split import SplitNetwork


def mlp(inputs: int, hidden: Sequence[int], outputs: int, dropout: float = 0.0) -> SplitNetwork:
    """Linear layers with ReLU between them; the last one is the head. PFLEGO's MNIST model is `mlp(784, [200], 10)`.

    >>> mlp(64, [200], 10).head
    Linear(in_features=200, out_features=10, bias=True)
    """
    for name, sizes in (("inputs", [inputs]), ("hidden", list(hidden)), ("outputs", [outputs])):
        require(all(map(is_count, sizes)), name, "positive ints", sizes)
    widths = [inputs, *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
    return SplitNetwork(nn.Sequential(*layers), nn.Linear(widths[-1], outputs))


def softmax_regression(inputs: int, outputs: int) -> SplitNetwork:
    """One linear layer: multinomial logistic regression under the classification loss."""
    return mlp(inputs, [], outputs)
