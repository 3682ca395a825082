"""The CIFAR network pools as published."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from fedtempo import models


def test_the_cifar_network_pools_as_same_padding_does():
    pool = next(layer for layer in models.cifar_cnn().body if isinstance(layer, nn.MaxPool2d))
    x = torch.randn(1, 1, 32, 32)
    same = F.max_pool2d(F.pad(x, (0, 1, 0, 1), value=-torch.inf), 3, 2)
    assert torch.equal(pool(x), same)
