"""The polar factor: exact, nearly exact and in double precision are one matrix."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedtempo.algorithms.parts.polar_factor import nearest_orthogonal, orthogonalised, polar_factor
from fedtempo.client.newton_schulz import QUINTIC

# 5 times a rotation, whose polar factor is the rotation.
ROTATION = torch.tensor([[0.6, -0.8], [0.8, 0.6]])


def test_a_scaled_rotation_has_the_rotation_as_its_polar_factor() -> None:
    torch.testing.assert_close(polar_factor(5 * ROTATION), ROTATION)
    torch.testing.assert_close(nearest_orthogonal(5 * ROTATION), ROTATION)


def test_newton_schulz_turns_as_the_polar_factor_does() -> None:
    """Its singular values are only near 1, so the direction is compared."""
    found = orthogonalised(5 * ROTATION)
    torch.testing.assert_close(found / torch.linalg.matrix_norm(found, 2), ROTATION, atol=1e-5, rtol=0)


def as_written(matrix: Tensor) -> Tensor:
    """Muon's five iterations on a matrix with no more rows than columns."""
    a, b, c = QUINTIC[0]
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x


@pytest.mark.parametrize("shape", [(12, 12), (12, 17), (12, 18), (12, 90), (1, 5)])
@pytest.mark.parametrize("rank", [12, 3])
def test_wide_matrices_are_iterated_by_their_squares(shape: tuple[int, int], rank: int) -> None:
    generator = torch.Generator().manual_seed(7)
    left, right = (
        torch.randn(*s, dtype=torch.float64, generator=generator) for s in ((shape[0], rank), (rank, shape[1]))
    )
    matrix = left @ right
    expected = as_written(matrix)
    torch.testing.assert_close(orthogonalised(matrix), expected, atol=1e-12, rtol=0)
    tall = orthogonalised(matrix.T) / (shape[1] / shape[0]) ** 0.5
    torch.testing.assert_close(tall, expected.T, atol=1e-12, rtol=0)
    torch.testing.assert_close(orthogonalised(matrix.float()).double(), expected, atol=1e-4, rtol=0)
