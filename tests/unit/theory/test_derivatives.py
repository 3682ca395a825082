"""Hessian-vector products and the largest eigenvalue, against the dense Hessian."""

import pytest
import torch
from torch import nn

from fedtempo.theory import (
    gradient,
    hessian_vector,
    largest_eigenvalue,
    model_loss,
)
from tests.unit.theory.small_models import batches, random, small_network


def dense_hessian(loss, params, batch):
    names, shapes = list(params), [p.shape for p in params.values()]
    sizes = [p.numel() for p in params.values()]

    def flat(vector):
        parts = torch.split(vector, sizes)
        return loss({n: part.reshape(s) for n, part, s in zip(names, parts, shapes, strict=True)}, batch)

    point = torch.cat([p.reshape(-1) for p in params.values()])
    return torch.autograd.functional.hessian(flat, point)


def test_hessian_vector_and_largest_eigenvalue_against_the_dense_hessian():
    batch = batches()[1][0]
    loss, params = model_loss(small_network(), batch)
    hessian = dense_hessian(loss, params, batch)
    draw = random(5)
    direction = {n: torch.randn(p.shape, generator=draw, dtype=torch.float64) for n, p in params.items()}
    product = hessian_vector(loss, params, batch, direction)
    flat = torch.cat([v.reshape(-1) for v in direction.values()])
    assert torch.allclose(torch.cat([v.reshape(-1) for v in product.values()]), hessian @ flat, atol=1e-12)
    top = float(torch.linalg.eigvalsh(hessian)[-1])
    assert largest_eigenvalue(loss, params, batch, iterations=2000, tolerance=1e-10) == pytest.approx(top, rel=1e-4)


def test_largest_eigenvalue_is_the_largest_not_the_one_largest_in_size():
    """Hessian diag(-5, 2): power iteration alone would return -5."""

    def saddle(params, batch):
        return (torch.tensor([-2.5, 1.0], dtype=torch.float64) * params["x"] ** 2).sum()

    point = {"x": torch.zeros(2, dtype=torch.float64)}
    assert largest_eigenvalue(saddle, point, {}, iterations=500, tolerance=1e-12) == pytest.approx(2.0, rel=1e-6)
    assert largest_eigenvalue(lambda p, b: (0 * p["x"]).sum(), point, {}) == 0.0


def test_batch_normalisation_is_taken_in_evaluation_mode():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    batch = batches()[0][0]
    loss, params = model_loss(model, batch)
    assert sorted(params) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    model.double().eval().requires_grad_(False)
    expected = nn.functional.cross_entropy(model(batch["x"]), batch["y"])
    assert float(loss(params, batch)) == pytest.approx(float(expected))
    assert gradient(loss, params, batch).keys() == params.keys()
