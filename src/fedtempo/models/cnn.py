"""A small convolutional network."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from fedtempo.errors import is_count, require
from fedtempo.models.split import SplitNetwork
from fedtempo.models.weights import freshly_drawn


class AsImages(nn.Module):
    """Rows of any layout as images (channels, height, width), so that flat and square pixels both fit."""

    def __init__(self, image: Sequence[int]) -> None:
        super().__init__()
        self.image = tuple(image)

    def forward(self, x: Tensor) -> Tensor:
        """The same numbers as (rows, channels, height, width)."""
        return x.reshape(x.shape[0], *self.image)


@freshly_drawn
def cnn(
    image: tuple[int, int, int] = (1, 28, 28),
    outputs: int = 10,
    *,
    channels: Sequence[int] = (32, 64),
    kernel: int = 3,
    hidden: int = 512,
    batch_norm: bool = False,
    padding: int = 0,
    pool: bool = True,
) -> SplitNetwork:
    """Convolution, optional BatchNorm, ReLU, 2x2 max-pooling, repeated; a hidden layer; a linear head.

    Without `pool` a convolution goes by strides of two instead, which takes about a quarter of the time. The papers'
    two FEMNIST networks, `femnist_cnn` and `convnet2`, are this one with their own sizes.

    >>> import torch
    >>> cnn((3, 32, 32), outputs=10, channels=(4, 8), hidden=16)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    require(len(image) == 3 and all(map(is_count, image)), "image", "(channels, height, width)", image)
    sizes = (*channels, kernel, hidden, outputs)
    require(all(map(is_count, sizes)), "channels, kernel, hidden and outputs", "positive ints", sizes)
    require(is_count(padding, 0), "padding", "an int >= 0", padding)
    depth, height, width = image
    layers: list[nn.Module] = [AsImages(image)]
    for wide in channels:
        layers.append(nn.Conv2d(depth, wide, kernel, stride=1 if pool else 2, padding=padding))
        if batch_norm:
            layers.append(nn.BatchNorm2d(wide))
        layers += [nn.ReLU(), nn.MaxPool2d(2)] if pool else [nn.ReLU()]
        # A stride reaches the last odd row, which pooling leaves out.
        lost = kernel - 1 - 2 * padding - (not pool)
        depth, height, width = wide, (height - lost) // 2, (width - lost) // 2
        require(min(height, width) >= 1, "image", "large enough for the convolutions", tuple(image))
    layers += [nn.Flatten(), nn.Linear(depth * height * width, hidden), nn.ReLU()]
    return SplitNetwork(nn.Sequential(*layers), nn.Linear(hidden, outputs))
