"""The private mean does what its epsilon assumes, and the epsilon is what a second calculation gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import gammaln, logsumexp

import fedtempo as ft
from fedtempo.server import robust


def test_noise_is_as_stated_over_a_hundred_thousand_draws(digits: ft.data.FederatedData) -> None:
    """With rate 0 only the noise moves the model: noise * bound / clients on every one of 105,010 numbers."""
    result = ft.run(
        model=ft.models.mlp(64, [1400], 10),
        data=digits,
        algorithm=ft.algorithms.fedavg(lr=0.0, steps=1),
        rounds=1,
        cohort=4,
        evaluation=None,
        aggregator=robust.private_mean(2.0, 1.5),
        dtype=torch.float64,
        backend="serial",
    )
    first = result.experiment.first_shared
    moved = np.concatenate([(p - first[name]).flatten().numpy() for name, p in result.params.items()])
    assert len(moved) > 100_000
    assert moved.std() == pytest.approx(1.5 * 2.0 / 4, rel=0.02)
    assert abs(moved.mean()) < 5 * 0.75 / math.sqrt(len(moved))


def by_hand(noise: float, rounds: int, sampling: float, delta: float) -> float:
    """Mironov, Talwar and Zhang's sum for the sampled Gaussian at whole orders, and the conversion of Canonne et al."""
    best = math.inf
    for order in range(2, 256):
        k = np.arange(order + 1)
        binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        logs = binomial + (k * k - k) / (2 * noise**2)
        if sampling < 1:
            logs = logs + k * math.log(sampling) + (order - k) * math.log1p(-sampling)
            divergence = float(logsumexp(logs)) / (order - 1)
        else:
            divergence = order / (2 * noise**2)
        converted = rounds * divergence - (math.log(delta) + math.log(order)) / (order - 1)
        best = min(best, converted + math.log((order - 1) / order))
    return best


@pytest.mark.parametrize(
    ("noise", "rounds", "sampling"), [(4.0, 10, 1.0), (8.0, 100, 1.0), (4.0, 1000, 0.1), (8.0, 1000, 0.1)]
)
def test_epsilon_is_that_of_a_second_calculation(noise: float, rounds: int, sampling: float) -> None:
    """Where the best order is above ten, so that whole orders are fine enough."""
    pytest.importorskip("opacus", reason="the privacy extra is not installed")
    ours = robust.epsilon(noise, rounds, sampling, 1e-5)
    assert ours == pytest.approx(by_hand(noise, rounds, sampling, 1e-5), rel=0.01)
