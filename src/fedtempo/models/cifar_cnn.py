"""PFLEGO's CIFAR-10 network."""

from __future__ import annotations

from torch import nn

from fedtempo.errors import is_count, require
from fedtempo.models.cnn import AsImages
from fedtempo.models.split import SplitNetwork
from fedtempo.models.weights import freshly_drawn


@freshly_drawn
def cifar_cnn(outputs: int = 10) -> SplitNetwork:
    """Twice (5x5 convolution with 64 channels, ReLU, 3x3 max-pooling of stride 2), then 384 and 192 units, a head.

    PFLEGO, section 4.1 and Figure 5 right, on 3x32x32 images; 1,756,426 parameters with 10 outputs.
    The released code pads so that 32 becomes 16 and 16 becomes 8. Weights start as torch's layers draw them, not as
    Stax does.

    >>> cifar_cnn().head
    Linear(in_features=192, out_features=10, bias=True)
    """
    require(is_count(outputs), "outputs", "an int >= 1", outputs)
    body = nn.Sequential(
        AsImages((3, 32, 32)),
        *_convolution(3),
        *_convolution(64),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
    )
    return SplitNetwork(body, nn.Linear(192, outputs))


def _convolution(channels: int) -> list[nn.Module]:
    # Stax's "SAME" pooling pads an even side at its end only. That is ceil_mode; padding=1 would shift the windows.
    return [nn.Conv2d(channels, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2, ceil_mode=True)]
