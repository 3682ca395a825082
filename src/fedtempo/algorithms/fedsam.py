"""FedSAM: gradients are taken where the loss is higher. A plug-in for any algorithm."""

from __future__ import annotations

import torch

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import named
from fedtempo.client.objectives import Value, View
from fedtempo.client.phase import Hook
from fedtempo.client.rules import GradientAt, Look
from fedtempo.errors import require
from fedtempo.params import Params, add, norm, scaled
from fedtempo.schedules import Position, Rate, checked_rate

POINT = "where gradients are taken"


@named
def fedsam(algorithm: Algorithm, *, rho: Rate = 0.1, eps: float = 0.0) -> Algorithm:
    """y <- y - l grad f_i(y + rho g / (|g| + eps)), g = grad f_i(y), both on one batch (Qu et al., 2022).

    One norm over all trained tensors; a zero gradient is not moved. A step costs two gradients. BatchNorm's statistics
    are those of the first pass. The authors' family of code has `eps=1e-7`. Fine-tuning takes plain gradients.
    """
    require(eps >= 0, "eps", "a number >= 0", eps)
    look = ascending(rho, eps=eps)
    return algorithm.claimed(POINT, "fedsam").with_phases(lambda phase: phase.hooked(Hook(look=look)))


def ascending(rho: Rate, share: float = 1.0, normalised: bool = True, eps: float = 0.0) -> Look:
    """(1 - share) g + share g_up, with g_up the gradient at y + rho g / |g|, or at y + rho g."""
    radius = checked_rate(rho, "rho")

    def look(gradient_at: GradientAt, view: View, now: Position) -> GradientAt:
        def mixed(params: Params) -> tuple[Params, Value]:
            gradient, value = gradient_at(params)
            up, _ = gradient_at(add(params, _step(gradient, normalised, eps), radius(now)))
            return (up if share == 1.0 else add(scaled(gradient, 1.0 - share), up, share)), value

        return mixed

    return look


def _step(gradient: Params, normalised: bool, eps: float) -> Params:
    if not normalised:
        return gradient
    length = norm(gradient)
    inverse = torch.where(length > 0, 1.0, 0.0) / (torch.where(length > 0, length, 1.0) + eps)
    return {n: g * inverse.to(g.dtype) for n, g in gradient.items()}
