"""U V' of a matrix W = U S V', the polar factor: exactly, nearly by a few products, and in double precision."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtempo.client.newton_schulz import QUINTIC, newton_schulz


def orthogonalised(matrix: Tensor) -> Tensor:
    """Five Newton-Schulz iterations, which bring all singular values near 1, times sqrt(max(1, rows / columns)).

    >>> orthogonalised(torch.zeros(2, 3)).abs().max().item()
    0.0
    """
    flat = matrix.reshape(matrix.shape[0], -1)
    rows, columns = flat.shape
    result: Tensor = (newton_schulz(flat, QUINTIC) * max(1.0, rows / columns) ** 0.5).reshape(matrix.shape)
    return result


def polar_factor(matrix: Tensor) -> Tensor:
    """U V^T of the singular value decomposition, times sqrt(max(1, rows / columns)); null directions stay zero.

    >>> polar_factor(torch.tensor([[3.0, 0.0], [0.0, 0.0]])).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    flat = matrix.reshape(matrix.shape[0], -1)
    rows, columns = flat.shape
    left, values, right = torch.linalg.svd(flat, full_matrices=False)
    # The usual bound of a numerical rank: below it a singular value is rounding, and its direction is arbitrary.
    kept = values > values.max() * max(rows, columns) * torch.finfo(values.dtype).eps
    turned = (left * kept.to(left.dtype)) @ right
    result: Tensor = (turned * max(1.0, rows / columns) ** 0.5).reshape(matrix.shape)
    return result


def nearest_orthogonal(matrix: Tensor) -> Tensor:
    """U V' of W = U S V': the nearest matrix with orthonormal rows, or columns where there are more rows."""
    left, _, right = torch.linalg.svd(matrix.to(torch.float64), full_matrices=False)
    nearest: Tensor = left @ right
    return nearest.to(matrix.dtype)
