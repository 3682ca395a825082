"""The polar factor: exact, nearly exact and in double precision are one matrix."""

from __future__ import annotations

import torch

from fedtempo.algorithms.parts.polar_factor import nearest_orthogonal, orthogonalised, polar_factor

# 5 times a rotation, whose polar factor is the rotation.
ROTATION = torch.tensor([[0.6, -0.8], [0.8, 0.6]])


def test_a_scaled_rotation_has_the_rotation_as_its_polar_factor() -> None:
    torch.testing.assert_close(polar_factor(5 * ROTATION), ROTATION)
    torch.testing.assert_close(nearest_orthogonal(5 * ROTATION), ROTATION)


def test_newton_schulz_turns_as_the_polar_factor_does() -> None:
    """Its singular values are only near 1, so the direction is compared."""
    found = orthogonalised(5 * ROTATION)
    torch.testing.assert_close(found / torch.linalg.matrix_norm(found, 2), ROTATION, atol=1e-5, rtol=0)
