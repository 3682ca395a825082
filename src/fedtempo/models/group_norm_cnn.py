"""A small convolutional network with GroupNorm."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from fedtempo.errors import is_count, require
from fedtempo.models.cnn import AsImages
from fedtempo.models.split import SplitNetwork
from fedtempo.models.weights import freshly_drawn


@freshly_drawn
def group_norm_cnn(
    image: tuple[int, int, int] = (3, 32, 32), outputs: int = 10, *, channels: Sequence[int] = (8, 16), groups: int = 2
) -> SplitNetwork:
    """3x3 convolution of stride 2 without bias, GroupNorm, ReLU, repeated; a linear head on all features.

    `resnet18` made small, for machines without a GPU: GroupNorm makes a convolution's scale irrelevant, so its
    gradient grows as weight decay shrinks it. That is what FedNAR is about, and networks without a norm lack it.

    >>> group_norm_cnn().head
    Linear(in_features=1024, out_features=10, bias=True)
    """
    require(len(image) == 3 and all(map(is_count, image)), "image", "(channels, height, width)", image)
    require(all(map(is_count, (*channels, outputs))), "channels and outputs", "positive ints", (*channels, outputs))
    require(
        is_count(groups) and not any(wide % groups for wide in channels), "groups", f"a divisor of {channels}", groups
    )
    depth, height, width = image
    layers: list[nn.Module] = [AsImages(image)]
    for wide in channels:
        layers += [nn.Conv2d(depth, wide, 3, 2, padding=1, bias=False), nn.GroupNorm(groups, wide), nn.ReLU()]
        depth, height, width = wide, (height + 1) // 2, (width + 1) // 2
    return SplitNetwork(nn.Sequential(*layers, nn.Flatten()), nn.Linear(depth * height * width, outputs))
