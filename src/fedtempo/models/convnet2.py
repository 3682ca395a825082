"""FedDecay's FEMNIST network."""

from __future__ import annotations

from fedtempo.models.cnn import cnn
from fedtempo.models.split import SplitNetwork


def convnet2(image: tuple[int, int, int] = (1, 28, 28), outputs: int = 62, hidden: int = 2048) -> SplitNetwork:
    """Twice (5x5 convolution that keeps the size, BatchNorm, ReLU, 2x2 max-pooling) with 32 and 64 channels, a hidden
    layer, a linear head: FedDecay's FEMNIST network, section 4 (`ConvNet2` of FederatedScope in the released code).

    The paper lists pooling before BatchNorm and ReLU; this is the order of the code. 6,603,902 parameters.

    >>> convnet2().head
    Linear(in_features=2048, out_features=62, bias=True)
    """
    return cnn(image, outputs, channels=(32, 64), kernel=5, hidden=hidden, batch_norm=True, padding=2)
