"""The decaying-K paper's FEMNIST network."""

from __future__ import annotations

from fedtempo.models.cnn import cnn
from fedtempo.models.split import SplitNetwork


def femnist_cnn(image: tuple[int, int, int] = (1, 28, 28), outputs: int = 62, hidden: int = 512) -> SplitNetwork:
    """Two 3x3 convolutions, a hidden layer of 512, a linear head: Table 2 of the decaying-K paper. 870,334 parameters.

    32 and 64 channels without padding, each followed by ReLU and 2x2 max-pooling.
    The table prints 64 outputs and the text 32x32 pixels; FEMNIST has 62 classes and LEAF's images are 28x28.

    >>> femnist_cnn().head
    Linear(in_features=512, out_features=62, bias=True)
    """
    return cnn(image, outputs, channels=(32, 64), kernel=3, hidden=hidden)
