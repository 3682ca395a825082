"""The residual network, as released."""

from __future__ import annotations

import torch

from fedtempo import models


def test_resnet_reads_nine_of_the_sixteen_last_features_as_released():
    x = torch.randn(2, 3, 32, 32)
    as_released, whole = models.resnet18(), models.resnet18(pool=4)
    whole.load_state_dict(as_released.state_dict())
    last = as_released.body[:-2](x)
    assert last.shape == (2, 512, 4, 4)
    torch.testing.assert_close(as_released.body(x), last[..., :3, :3].mean((2, 3)))
    torch.testing.assert_close(whole.body(x), last.mean((2, 3)))
