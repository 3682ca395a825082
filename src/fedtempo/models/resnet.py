"""FedNAR's ResNet-18: GroupNorm instead of BatchNorm, and a stem for small images."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from fedtempo.errors import is_count, require
from fedtempo.models.cnn import AsImages
from fedtempo.models.split import SplitNetwork
from fedtempo.models.weights import freshly_drawn


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions whose result is added to the input; the input is projected where shapes differ."""

    def __init__(self, channels_in: int, channels: int, stride: int, groups: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_normalised(channels_in, channels, kernel=3, stride=stride, groups=groups),
            nn.ReLU(),
            *_normalised(channels, channels, kernel=3, stride=1, groups=groups),
        )
        same = stride == 1 and channels_in == channels
        self.shortcut = nn.Sequential(
            *([] if same else _normalised(channels_in, channels, kernel=1, stride=stride, groups=groups))
        )

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of the sum."""
        return F.relu(self.residual(x) + self.shortcut(x))


@freshly_drawn
def resnet18(outputs: int = 10, groups: int = 2, pool: int = 3) -> SplitNetwork:
    """ResNet-18 on 3x32x32 images with GroupNorm: FedNAR's CIFAR-10 network, section 5.1. 11,173,962 parameters.

    The stem is one 3x3 convolution of stride 1 without pooling. `pool=3` is the released code's average: it reads the
    upper left 3x3 of the last 4x4 features and drops the rest. `pool=4` reads all of them.

    >>> resnet18().head
    Linear(in_features=512, out_features=10, bias=True)
    """
    require(is_count(outputs), "outputs", "an int >= 1", outputs)
    require(is_count(groups) and 64 % groups == 0, "groups", "a divisor of 64", groups)
    require(pool in (3, 4), "pool", "3 or 4", pool)
    layers: list[nn.Module] = [AsImages((3, 32, 32)), *_normalised(3, 64, kernel=3, stride=1, groups=groups), nn.ReLU()]
    channels_in = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers.append(ResidualBlock(channels_in, channels, stride, groups))
        layers.append(ResidualBlock(channels, channels, 1, groups))
        channels_in = channels
    return SplitNetwork(nn.Sequential(*layers, nn.AvgPool2d(pool), nn.Flatten()), nn.Linear(512, outputs))


def _normalised(channels_in: int, channels: int, *, kernel: int, stride: int, groups: int) -> list[nn.Module]:
    convolution = nn.Conv2d(channels_in, channels, kernel, stride, padding=kernel // 2, bias=False)
    return [convolution, nn.GroupNorm(groups, channels)]
