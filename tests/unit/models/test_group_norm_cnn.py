"""The network with group norm."""

from __future__ import annotations

import torch

from fedtempo import models


def test_scaling_a_convolution_before_group_norm_changes_nothing_but_its_gradient():
    model, x = models.group_norm_cnn(), torch.randn(2, 3, 32, 32)
    before = model(x)
    (gradient,) = torch.autograd.grad(before.sum(), model.body[1].weight)
    with torch.no_grad():
        model.body[1].weight.mul_(2)
    after = model(x)
    (halved,) = torch.autograd.grad(after.sum(), model.body[1].weight)
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(2 * halved, gradient, rtol=1e-2, atol=1e-2)
