"""PFLEGO's Omniglot network."""

from __future__ import annotations

from torch import nn

from fedtempo.errors import is_count, require
from fedtempo.models.cnn import AsImages
from fedtempo.models.split import SplitNetwork
from fedtempo.models.weights import freshly_drawn


@freshly_drawn
def omniglot_cnn(outputs: int = 55) -> SplitNetwork:
    """Four times (3x3 convolution with 64 channels, ReLU, 2x2 max-pooling): 64 features, and a linear head.

    PFLEGO, section 4.1 and Figure 5 middle; 28x28 images as in the released code, where the paper says 105x105.
    55 is the size of the largest alphabet, which the single-head methods need. 114,999 parameters.

    >>> omniglot_cnn().head
    Linear(in_features=64, out_features=55, bias=True)
    """
    require(is_count(outputs), "outputs", "an int >= 1", outputs)
    layers: list[nn.Module] = [AsImages((1, 28, 28))]
    for channels in (1, 64, 64, 64):
        layers += [nn.Conv2d(channels, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return SplitNetwork(nn.Sequential(*layers, nn.Flatten()), nn.Linear(64, outputs))
