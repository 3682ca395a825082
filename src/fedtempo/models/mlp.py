"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from fedtempo.errors import is_count, is_number, require
from fedtempo.models.split import SplitNetwork
from fedtempo.models.weights import freshly_drawn


@freshly_drawn
def mlp(inputs: int = 784, hidden: Sequence[int] = (200,), outputs: int = 10, dropout: float = 0.0) -> SplitNetwork:
    """Linear layers with ReLU between them; the last one is the head.

    The defaults are PFLEGO's network for MNIST, Fashion-MNIST and, with 62 outputs, EMNIST (section 4.1 and Figure 5
    left): 159,010 parameters.

    >>> mlp(64, [200], 10).head
    Linear(in_features=200, out_features=10, bias=True)
    """
    require(isinstance(hidden, Sequence) and not isinstance(hidden, str), "hidden", "a list of positive ints", hidden)
    for name, sizes in (("inputs", [inputs]), ("hidden", list(hidden)), ("outputs", [outputs])):
        require(all(map(is_count, sizes)), name, "positive ints", sizes)
    require(is_number(dropout) and 0 <= dropout < 1, "dropout", "a fraction in [0, 1)", dropout)
    widths = [inputs, *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
    return SplitNetwork(nn.Sequential(*layers), nn.Linear(widths[-1], outputs))


def softmax_regression(inputs: int, outputs: int) -> SplitNetwork:
    """One linear layer: multinomial logistic regression under the classification loss.

    >>> sum(p.numel() for p in softmax_regression(64, 10).parameters())
    650
    """
    return mlp(inputs, [], outputs)


def logistic_regression(inputs: int = 10_000, outputs: int = 500) -> SplitNetwork:
    """One yes-or-no regression per output, under the `multilabel` loss: the same linear layer.

    The defaults are the decaying-K paper's StackOverflow network, words to tags (Appendix B): 5,000,500 parameters.
    """
    return mlp(inputs, [], outputs)
