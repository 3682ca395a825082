"""Surrogate minimisers of the decaying-K paper: exact cases, bounds on random instances, and the toy."""

import math

import numpy as np
import pytest

from fedtempo.errors import ConfigError
from fedtempo.schedules import Now, constant, decaying_k, decaying_lr, whole_number
from fedtempo.theory import (
    Quadratics,
    distortion,
    illustration,
    minimiser_gap_bound,
    minimiser_shift_bound,
    simple_shift_bound,
    surrogate_eigenvalue,
    surrogate_gradient,
    surrogate_minimiser,
    true_minimiser,
)


def random_problem(seed, clients=5, size=3):
    random = np.random.default_rng(seed)
    rotations = np.linalg.qr(random.standard_normal((clients, size, size)))[0]
    eigenvalues = random.uniform(0.3, random.uniform(0.5, 6.0), (clients, size))
    hessians = np.einsum("iab,ib,icb->iac", rotations, eigenvalues, rotations)
    centres = random.standard_normal((clients, size)) * random.uniform(0.1, 3.0)
    return Quadratics.of(hessians, centres, random.uniform(0.1, 1.0, clients)), random


def walk(problem, start, lr, steps):
    """The weighted mean of x - y over clients, step by step."""
    moved = np.zeros_like(start)
    for hessian, centre, weight in zip(problem.curvatures, problem.minimisers, problem.weights, strict=True):
        current = start
        for _ in range(steps):
            current = current - lr * hessian @ (current - centre)
        moved = moved + weight * (start - current)
    return moved


def test_distortion_by_hand_and_its_eigenvalues():
    """A = 2, gamma = 1/4, K = 3: Q = 1 + 1/2 + 1/4 = 7/4, phi = Q A = 7/2 = (1 - 1/8) / (1/4)."""
    assert distortion([[2.0]], 0.25, 3)[0, 0] == 1.75
    assert surrogate_eigenvalue(2.0, 0.25, 3) == 3.5
    problem, _ = random_problem(0)
    hessian = problem.curvatures[0]
    eigenvalues = np.linalg.eigvalsh(distortion(hessian, 0.1, 7) @ hessian)
    expected = sorted(surrogate_eigenvalue(float(value), 0.1, 7) for value in np.linalg.eigvalsh(hessian))
    assert eigenvalues == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_displacement_is_the_surrogate_gradient(steps):
    problem, random = random_problem(1)
    start = random.standard_normal(3)
    assert walk(problem, start, 0.1, steps) / 0.1 == pytest.approx(surrogate_gradient(problem, start, 0.1, steps))


@pytest.mark.parametrize("steps", [1, 4, 20])
def test_rounds_come_to_rest_at_the_surrogate_minimiser(steps):
    problem, _ = random_problem(2)
    point = np.zeros(3)
    for _ in range(3000):
        point = point - walk(problem, point, 0.05, steps)
    assert point == pytest.approx(surrogate_minimiser(problem, 0.05, steps), abs=1e-10)
    gap = np.linalg.norm(point - true_minimiser(problem))
    assert gap < 1e-10 if steps == 1 else gap > 1e-3


def test_equal_hessians_leave_the_minimiser_alone():
    """With A_i = A the distortion cancels: both minimisers are the mean of c_i."""
    problem, _ = random_problem(3)
    same = Quadratics.of(np.repeat(problem.curvatures[:1], 5, axis=0), problem.minimisers)
    assert surrogate_minimiser(same, 0.1, 50) == pytest.approx(problem.minimisers.mean(axis=0))


@pytest.mark.parametrize("seed", range(60))
def test_equation_7_theorem_1_and_corollary_1_hold(seed):
    """The bounds hold on random instances, up to the largest learning rate 1/L they allow."""
    problem, random = random_problem(seed, clients=int(2 + seed % 6), size=1 + seed % 4)
    lr = float(random.uniform(0.05, 1.0) / problem.curvature_range()[1])
    fewer, more = sorted(int(k) for k in random.integers(1, 40, 2))
    gap = np.linalg.norm(surrogate_minimiser(problem, lr, more) - true_minimiser(problem))
    assert gap <= minimiser_gap_bound(problem, lr, more) + 1e-12
    shift = np.linalg.norm(surrogate_minimiser(problem, lr, more) - surrogate_minimiser(problem, lr, fewer))
    theorem = minimiser_shift_bound(problem, lr, fewer, more)
    assert shift <= theorem + 1e-12
    assert theorem <= simple_shift_bound(problem, lr, fewer, more) + 1e-12


def test_equation_7_by_hand():
    """A = (1, 1/2), c = (1, -1), p = (1/4, 3/4), gamma = 1, K = 2.

    Q A = (1, 3/4), so x*(1, 2) = (1 - 9/4) / (1 + 9/4) = -5/13, and x* = (1 - 3/2) / (1 + 3/2) = -1/5: a gap of 12/65.
    c has mean -1/2 and variance 3/4; A has mean 5/8 and variance 3/64; L K - phi_L = 2 - 1, phi_mu = 3/4.
    """
    problem = Quadratics.of([[[1.0]], [[0.5]]], [[1.0], [-1.0]], [1.0, 3.0])
    gap = float(true_minimiser(problem)[0] - surrogate_minimiser(problem, 1.0, 2)[0])
    assert gap == pytest.approx(12 / 65)
    bound = math.sqrt(3 / 4) * (1 + 2 * math.sqrt(3 / 64)) * 1 / (3 / 4)
    assert minimiser_gap_bound(problem, 1.0, 2) == pytest.approx(bound)
    assert gap < bound < 10 * gap


def test_bounds_vanish_where_they_should():
    problem, _ = random_problem(4)
    assert minimiser_gap_bound(problem, 0.1, 1) == pytest.approx(0.0, abs=1e-12)
    assert minimiser_shift_bound(problem, 0.1, 7, 7) == pytest.approx(0.0, abs=1e-12)
    assert simple_shift_bound(problem, 0.1, 7, 7) == 0.0
    small, smaller = (minimiser_gap_bound(problem, lr, 10) for lr in (1e-4, 1e-5))
    assert small / smaller == pytest.approx(10, rel=0.02)


def test_toy_true_minimiser():
    root = math.sqrt(3)
    assert float(true_minimiser(illustration())[0]) == pytest.approx(3 * (root - 1) / (3 * root - 1), abs=1e-12)
    assert round(float(true_minimiser(illustration())[0]), 6) == 0.523373


@pytest.mark.parametrize("steps", [1, 10, 50])
def test_toy_surrogate_minimiser_against_plain_integration(steps):
    """x*(gamma, K) = E[Q_z] / E[Q_z z] with density z^(-1/2); a midpoint rule of 200,000 cells on [1, 3]."""
    z = 1 + 2 * (np.arange(200_000) + 0.5) / 200_000
    surrogate = (1 - (1 - 0.1 * z) ** steps) / 0.1
    expected = (surrogate / z / np.sqrt(z)).sum() / (surrogate / np.sqrt(z)).sum()
    assert float(surrogate_minimiser(illustration(), 0.1, steps)[0]) == pytest.approx(expected, abs=1e-10)


def toy_path(server_lr, steps, lr=None, rounds=3000):
    """The toy's mean field: every client takes part, x <- x - eta E[x - y]; z^K in closed form."""
    toy, lr = illustration(), lr or constant(0.1)
    z, point, path = toy.curvatures[:, 0, 0], 0.4, []
    for t in range(rounds):
        gamma, count = lr.at(Now(round=t)), whole_number(steps.at(Now(round=t)))
        kept = (1 - gamma * z) ** count
        point -= server_lr * float(toy.weights @ ((1 - kept) * (point - 1 / z)))
        path.append(point)
    return path


def test_erratum_16_the_server_rate_of_the_toy():
    """With eta = .001 and a mean over clients nothing arrives in 3000 rounds; eta = .01 matches Figure 1b."""
    assert toy_path(0.001, constant(1))[-1] == pytest.approx(0.4538, abs=5e-5)
    assert toy_path(0.001, decaying_k(10, 0.995))[-1] == pytest.approx(0.4668, abs=5e-5)
    assert toy_path(0.001, constant(10), decaying_lr(0.1, 0.995))[-1] == pytest.approx(0.4314, abs=5e-5)
    path = toy_path(0.01, decaying_k(10, 0.995))
    assert path[499] == pytest.approx(0.5245, abs=5e-5)
    assert path[-1] == pytest.approx(0.52338, abs=1e-5)


def test_erratum_16_the_overshoot_of_figure_1a():
    annealed = decaying_lr(0.1, 0.995)
    assert max(toy_path(0.01, constant(10), annealed)) == pytest.approx(0.5227, abs=5e-5)
    assert max(toy_path(0.01, constant(20), annealed)) == pytest.approx(0.538, abs=5e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Quadratics.of([[1.0]], [[1.0]]), r"curvatures must be \(clients, d, d\)"),
        (lambda: Quadratics.of([[[1.0, 2.0], [0.0, 1.0]]], [[0.0, 0.0]]), "curvatures must be symmetric"),
        (lambda: Quadratics.of([[[1.0]]], [[0.0]], [-1.0]), "weights must be 1 numbers >= 0"),
        (lambda: minimiser_gap_bound(illustration(), 0.5, 3), r"lr must be a number in \(0, 1/L\]"),
        (lambda: minimiser_shift_bound(illustration(), 0.1, 5, 3), r"fewer must be in \[1, more = 3\]"),
        (lambda: distortion([[1.0]], 0.1, 0), "steps must be an int >= 1"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
