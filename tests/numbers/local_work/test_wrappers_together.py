"""Two wrappers, or a wrapper around a method with a server of its own, against numpy: five rounds, some clients."""

from collections.abc import Callable

import numpy as np
import pytest

import fedtempo as ft
from fedtempo import algorithms as fl
from tests.numbers.local_work.clients import unit
from tests.numbers.personal_and_fair.fair import projected
from tests.numbers.single_model.problem import EVERYBODY, PLANE, SOME, START, assert_same, run

L, K, N = 0.1, 3, 4
P, X = PLANE, START
Cohorts = list[list[int]]


def steps_from(start: np.ndarray, i: int, rate: float = L, at: Callable[[np.ndarray], np.ndarray] = lambda y: y):
    y = start
    for _ in range(K):
        y = y - rate * P.gradient(i, at(y))
    return y


def relaxed_and_perturbed(cohorts: Cohorts, beta: float, rho: float, everybody: bool) -> np.ndarray:
    """Clients start at x + beta (x - z_i), and look towards the shared model that they received before."""
    x, before, last, received, models = X, X, {}, {}, []
    for cohort in cohorts:
        moves = []
        for i in cohort:
            kick = rho * unit((before if everybody else received.get(i, x)) - x)
            start = x + beta * (x - last.get(i, x))
            last[i], received[i] = steps_from(start, i, at=lambda y, kick=kick: y + kick), x
            moves.append(last[i] - start)
        before, x = x, x + np.mean(moves, axis=0)
        models.append(x)
    return np.array(models)


def relaxed_and_fair(cohorts: Cohorts, beta: float, q: float, fair: bool) -> np.ndarray:
    """F_i is the loss of the shared model, not of the client's own start; q-FedAvg, or weights F_i^q."""
    x, last, models = X, {}, []
    for cohort in cohorts:
        total, height = np.zeros_like(x), 0.0
        for i in cohort:
            F = P.loss(i, x) + (1e-10 if fair else 0.0)
            start = x + beta * (x - last.get(i, x))
            last[i] = steps_from(start, i)
            u = (last[i] - start) / L
            total = total + F**q * u
            height += q * F ** (q - 1) * u @ u + F**q / L if fair else F**q / L
        x = x + total / height
        models.append(x)
    return np.array(models)


def agnostic(
    cohorts: Cohorts, weights_lr: float, on_clients: float = 0.0, on_server: float = 0.0, decay: float = 0.0
) -> np.ndarray:
    """AFL with FedHyper's rates: D_t is (N / |S|) sum lambda_i Delta_i, the server's factor comes after."""
    x, weights, rate, alpha, last, models = X, np.full(N, 1 / N), L, 1.0, None, []
    for cohort in cohorts:
        D, losses = np.zeros_like(x), np.zeros(N)
        for i in cohort:
            losses[i] = N / len(cohort) * P.loss(i, x)
            D = D + N / len(cohort) * weights[i] * (steps_from(x, i, rate) - x)
        agreement = 0.0 if last is None else D @ last
        rate = np.clip(rate + on_clients * agreement, L / 10, 10 * L)
        alpha = np.clip(alpha + on_server * agreement, 1 / 3, 3)
        x, last = x + alpha * D - decay * x, D
        weights = projected(weights + weights_lr * losses)
        models.append(x)
    return np.array(models)


def both_hypers(cohorts: Cohorts, on_clients: float, on_server: float) -> np.ndarray:
    x, rate, alpha, last, models = X, L, 1.0, None, []
    for cohort in cohorts:
        D = np.mean([steps_from(x, i, rate) - x for i in cohort], axis=0)
        agreement = 0.0 if last is None else D @ last
        rate = np.clip(rate + on_clients * agreement, L / 10, 10 * L)
        alpha = np.clip(alpha + on_server * agreement, 1 / 3, 3)
        x, last = x + alpha * D, D
        models.append(x)
    return np.array(models)


PLAIN = fl.fedavg(lr=L, steps=K)
AFL = fl.afl(lr=L, steps=K, weights_lr=0.05)


def relaxed(algorithm: ft.Algorithm) -> ft.Algorithm:
    return fl.fedinit(algorithm, beta=0.3, sends="displacements")


CASES: dict[str, tuple[ft.Algorithm, Callable[[Cohorts], np.ndarray]]] = {
    **{
        f"{name}, {previous}": (algorithm, lambda c, p=previous: relaxed_and_perturbed(c, 0.3, 0.2, p == "global"))
        for previous in ("received", "global")
        for name, algorithm in {
            "fedlesam around fedinit": fl.fedlesam(relaxed(PLAIN), rho=0.2, previous=previous),
            "fedinit around fedlesam": relaxed(fl.fedlesam(PLAIN, rho=0.2, previous=previous)),
        }.items()
    },
    "q_fedavg, relaxed": (relaxed(fl.q_fedavg(lr=L, steps=K, q=2.0)), lambda c: relaxed_and_fair(c, 0.3, 2.0, True)),
    "weights by loss, relaxed": (
        relaxed(fl.loss_weighted(PLAIN, power=2.0)),
        lambda c: relaxed_and_fair(c, 0.3, 2.0, False),
    ),
    "relaxed, weights by loss": (
        fl.loss_weighted(relaxed(PLAIN), power=2.0),
        lambda c: relaxed_and_fair(c, 0.3, 2.0, False),
    ),
    "afl under fedhyper's rate for clients": (
        fl.fedhyper_server(AFL, step=0.02),
        lambda c: agnostic(c, 0.05, on_clients=0.02),
    ),
    "afl under both of fedhyper's rates": (
        fl.fedhyper_server(fl.fedhyper_global(AFL, step=0.5), step=0.02),
        lambda c: agnostic(c, 0.05, on_clients=0.02, on_server=0.5),
    ),
    "afl, fedhyper's factor, decay at the server": (
        fl.server_decay(fl.fedhyper_global(AFL, step=0.5), decay=0.05),
        lambda c: agnostic(c, 0.05, on_server=0.5, decay=0.05),
    ),
    "both of fedhyper's rates": (
        fl.fedhyper_server(fl.fedhyper_global(PLAIN, step=0.5), step=0.05),
        lambda c: both_hypers(c, 0.05, 0.5),
    ),
}


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("cohorts", [EVERYBODY, SOME], ids=["everybody", "some"])
@pytest.mark.parametrize("name", CASES)
def test_both_are_their_reference(name: str, cohorts: Cohorts, backend: str) -> None:
    algorithm, reference = CASES[name]
    assert_same(run(P, algorithm, X, cohorts, backend=backend), reference(cohorts), 1e-9)


def test_afl_reports_the_rates_beside_its_largest_weight() -> None:
    algorithm, _ = CASES["afl under both of fedhyper's rates"]
    reported = run(P, algorithm, X, SOME).history[-1].measurements
    assert {"client_lr", "server_lr", "largest_weight"} <= set(reported)
