"""The decaying-K paper's illustration, on the library's engine and against the closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.papers.decaying_k.quadratic import figure_1, settings
from fedtempo.theory import Quadratics, surrogate_minimiser, true_minimiser
from tests.slow import slow_but


def trained(algorithm: ft.Algorithm, rounds: int, cohort: float = 1.0, clients: int = 12) -> tuple[float, np.ndarray]:
    data = ft.data.load("quadratic", clients=clients).split(ft.data.natural(), validation=0.0, test=0.0)
    result = ft.run(
        model=ft.models.quadratic(),
        data=data,
        algorithm=algorithm,
        rounds=rounds,
        cohort=cohort,
        batch_size=1,
        loss="direct",
        dtype=torch.float64,
        evaluation=None,
    )
    return float(result.params["x"]), np.asarray(data.columns["x"])


@pytest.mark.parametrize("k", slow_but([5], [1, 5, 10], "one number of steps runs every time"))
def test_constant_k_ends_at_the_surrogate_minimiser(k: int) -> None:
    """With everybody present the fixed point is x*(gamma, K) of the clients at hand, to machine precision."""
    x, z = trained(ft.algorithms.fedavg(lr=0.1, steps=k, server_lr=1.0), rounds=200)
    problem = Quadratics.of(z[:, None, None], (1 / z)[:, None])
    assert x == pytest.approx(float(surrogate_minimiser(problem, 0.1, k)[0]), abs=1e-12)


def test_decaying_k_ends_at_the_true_minimiser_and_constant_k_does_not() -> None:
    decayed, z = trained(ft.algorithms.fedavg(lr=0.1, steps=ft.schedules.decaying_k(10, 0.8)), rounds=200)
    constant, _ = trained(ft.algorithms.fedavg(lr=0.1, steps=10), rounds=100)
    best = float(true_minimiser(Quadratics.of(z[:, None, None], (1 / z)[:, None]))[0])
    assert best == pytest.approx(1 / z.mean())
    assert decayed == pytest.approx(best, abs=1e-12)
    assert abs(constant - best) > 1e-3


def test_all_curves_run_and_count_their_steps() -> None:
    curves = {c.label: c for c in figure_1(rounds=12, runs=1, clients=20)}
    assert set(curves) == set(settings())
    assert curves["K = 10"].steps == 120
    # ceil(10 * 0.99^t) for t = 0..11: 10 once, then 10 until 0.99^t falls to 0.9 at t = 11, where it is 9.
    assert curves["K = 10 decays by 0.99"].steps == 10 + 10 * 10 + 9
    assert curves["K = 10"].x[-1] > curves["K = 1"].x[-1] > 0.4


@pytest.mark.slow("the paper's own number of rounds")
def test_the_papers_figure() -> None:
    """d_K = 0.995 reaches x* = 0.523373 within the noise of ten clients a round and saves 84.7 % of the steps."""
    curves = {c.label: c for c in figure_1(rounds=3000, runs=1)}
    decayed, constant = curves["K = 10 decays by 0.995"], curves["K = 10"]
    assert decayed.steps == 4586
    assert abs(np.mean(decayed.x[-500:]) - 0.5234) < 0.01
    assert np.mean(constant.x[-500:]) > np.mean(decayed.x[-500:])
