"""The Newton-Schulz iteration: a matrix with all singular values brought near 1, by products alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Triple = tuple[float, float, float]
QUINTIC: tuple[Triple, ...] = ((3.4445, -4.775, 2.0315),) * 5
"""Muon's coefficients: the same in all five passes."""
MULOCO: tuple[Triple, ...] = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
"""MuLoCo's coefficients, in this order."""


def newton_schulz(matrix: Tensor, triples: Sequence[Triple]) -> Tensor:
    """x <- (a + b x x' + c (x x')^2) x for each triple (a, b, c), from the matrix over its Frobenius norm.

    >>> newton_schulz(torch.zeros(2, 3), QUINTIC).abs().max().item()
    0.0
    """
    x = matrix / (torch.sqrt((matrix * matrix).sum()) + 1e-7)
    return _iterated(x.T, triples).T if x.shape[0] > x.shape[1] else _iterated(x, triples)


def _iterated(x: Tensor, triples: Sequence[Triple]) -> Tensor:
    """The passes over a matrix that has no more rows than columns."""
    rows, columns = x.shape
    if columns < 1.5 * rows:
        for triple in triples:
            x = _polynomial(x @ x.T, triple) @ x
        return x
    # p(s) x has the square p(s) s p(s), so a wide matrix is multiplied only before the first pass and after the last.
    square = x @ x.T
    factor = whole = _polynomial(square, triples[0])
    for triple in triples[1:]:
        square = factor @ square @ factor
        factor = _polynomial(square, triple)
        whole = factor @ whole
    return whole @ x


def _polynomial(square: Tensor, triple: Triple) -> Tensor:
    a, b, c = triple
    return a * torch.eye(len(square), dtype=square.dtype, device=square.device) + b * square + c * square @ square
