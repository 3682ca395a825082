"""FedDecay's FEMNIST network."""

from __future__ import annotations

from fedtempo.models.cnn import cnn
from fedtempo.models.split import SplitNetwork


def convnet2(image: tuple[int, int, int] = (1, 28, 28), outputs: int = 62, hidden: int = 2048) -> SplitNetwork:
    """Two 5x5 convolutions with BatchNorm, a hidden layer of 2048, a linear head: FedDecay, section 4.

    `ConvNet2` of FederatedScope in the released code: 32 and 64 channels, padded to keep the size, each followed by
    BatchNorm, ReLU and 2x2 max-pooling. The paper lists pooling first; this is the order of the code.
    6,603,902 parameters.

    >>> convnet2().head
    Linear(in_features=2048, out_features=62, bias=True)
    """
    return cnn(image, outputs, channels=(32, 64), kernel=5, hidden=hidden, batch_norm=True, padding=2)
