"""Decaying K's Theorem 2 on quadratic clients: its schedules, and the distance to the minimiser below its bound."""

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.errors import ConfigError
from fedtempo.schedules import Now
from fedtempo.theory import DecayingSteps, Quadratics, illustration, surrogate_eigenvalue, true_minimiser

PROBLEM = Quadratics.of([[[1.0]], [[1.5]], [[2.0]]], [[-1.0], [0.5], [2.0]])
THEOREM = DecayingSteps.of(PROBLEM, lr=0.01, first_steps=60)


def surrogate(theorem: DecayingSteps, problem: Quadratics, x: float, steps: float) -> float:
    """E[phi_{A_i}(gamma, K) (x - c_i)]: the mean sum of a client's gradients, for a continuous K."""
    slopes = [surrogate_eigenvalue(float(a[0, 0]), theorem.lr, steps) for a in problem.curvatures]
    offsets = x - problem.minimisers[:, 0]
    return float(problem.weights @ (np.array(slopes) * offsets))


@pytest.mark.parametrize("start", [0.0, 5.0])
def test_the_distance_stays_below_the_bound(start: float) -> None:
    """Mean-field rounds, G = 0: x <- x - eta_t E[phi (x - c)]."""
    x, best = start, float(true_minimiser(PROBLEM)[0])
    first = [surrogate_eigenvalue(float(a[0, 0]), THEOREM.lr, THEOREM.steps(0)) for a in PROBLEM.curvatures]
    middle = float(np.average(PROBLEM.minimisers[:, 0], weights=np.array(first)))
    for t in range(300):
        squared = (x - best) ** 2
        assert squared <= THEOREM.bound(t, distance=abs(start - middle), noise=0.0, cohort=3, batch=1)
        x -= THEOREM.server_rate(t) * surrogate(THEOREM, PROBLEM, x, THEOREM.steps(t))
    assert abs(x - best) < 0.01


def test_steps_fall_to_one_and_the_rate_falls_with_the_rounds() -> None:
    steps = [THEOREM.steps(t) for t in range(100)]
    assert steps[0] == pytest.approx(60 / 13)
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == 1
    assert THEOREM.offset == 12
    assert THEOREM.server_rate(99) < THEOREM.server_rate(0)


def test_the_schedules_are_fedavgs() -> None:
    """A round of `fedavg` with both schedules is the theorem's round, where K_t is a whole number."""
    steps, server = THEOREM.schedules()
    assert server.at(Now(round=3)) == pytest.approx(THEOREM.server_rate(3) / THEOREM.lr)
    algorithm = ft.algorithms.fedavg(lr=THEOREM.lr, steps=steps, server_lr=server)
    assert algorithm.phases[0].length.units(Now(round=0)) == 5


def test_more_steps_move_the_bound_and_a_larger_rate_is_refused() -> None:
    bounds = [
        DecayingSteps.of(PROBLEM, 0.005, k).bound(10, distance=0.0, noise=1.0, cohort=10, batch=32) for k in (10, 100)
    ]
    assert bounds[1] > bounds[0]
    with pytest.raises(ConfigError, match=r"lr must be a number in \(0, 0.0115525\]. Got 0.1"):
        DecayingSteps.of(PROBLEM, lr=0.1, first_steps=60)
    assert DecayingSteps.of(illustration(), 0.05, 10).offset == pytest.approx(27, rel=0.02)
