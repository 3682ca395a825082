"""The clients' own rules against numpy: five rounds of changing cohorts, on both backends."""

from __future__ import annotations

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.papers.control.adaptive import beta_by_agreement, decay_by_norms, k_by_own_loss, uneven_steps
from fedtempo.schedules import Now
from tests.numbers.single_model.problem import PLANE, START, assert_same, run
from tests.numbers.single_model.reference import Client, federate

L, K = 0.05, 4
COHORTS = [[0, 1, 2, 3], [0, 2], [1, 3], [0, 1, 3], [2]]
BACKENDS = ["serial", "vectorised"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_beta_follows_the_agreement_with_the_last_round(backend: str) -> None:
    memory: dict[str, np.ndarray] = {}
    betas: list[float] = []

    def client(t: int, i: int, x: np.ndarray) -> np.ndarray:
        first, last = PLANE.gradient(i, x), memory.get("last", np.zeros(3))
        lengths = np.linalg.norm(first) * np.linalg.norm(last)
        beta = 0.2 + 0.8 * (1 - max(0.0, -first @ last / lengths if lengths else 0.0))
        betas.append(beta)
        y = x
        for k in range(K):
            y = y - L * beta**k * PLANE.gradient(i, y)
        return y - x

    def server(t: int, x: np.ndarray, deltas: list[np.ndarray], weights: list[float]) -> np.ndarray:
        memory["last"] = np.mean(deltas, axis=0)
        return x + memory["last"]

    expected = federate(PLANE, START, COHORTS, client, server)
    assert_same(run(PLANE, beta_by_agreement(L, K), START, COHORTS, backend), expected, 1e-9)
    assert betas[:4] == [1.0] * 4, "nothing is known in the first round"
    assert min(betas) < 0.9 and max(betas[4:]) == 1.0, "some clients agree with the last round and some do not"


@pytest.mark.parametrize("backend", BACKENDS)
def test_decay_is_a_share_of_the_gradient(backend: str) -> None:
    def client(t: int, i: int, x: np.ndarray) -> np.ndarray:
        y = x
        for _ in range(K):
            g = PLANE.gradient(i, y)
            y = y - L * (g + 0.3 * np.linalg.norm(g) / np.linalg.norm(y) * y)
        return y - x

    expected = federate(PLANE, START, COHORTS, client)
    assert_same(run(PLANE, decay_by_norms(L, K, 0.3), START, COHORTS, backend), expected, 1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_has_learnt_takes_fewer_steps(backend: str) -> None:
    """K_i is the ceiling of 5 times the cube root of the client's last mean loss over its steps, and at most 5."""
    lengths: list[int] = []
    client = _shrinking(lengths)
    expected = federate(PLANE, START, COHORTS, client)
    algorithm = ft.algorithms.fedavg(lr=L, steps=k_by_own_loss(5))
    assert_same(run(PLANE, algorithm, START, COHORTS, backend), expected, 1e-9)
    assert lengths[:4] == [5] * 4 and min(lengths) < 5


def _shrinking(lengths: list[int]) -> Client:
    losses: dict[int, float] = {}

    def client(t: int, i: int, x: np.ndarray) -> np.ndarray:
        steps = int(np.ceil(min(5.0, 5 * losses[i] ** (1 / 3)))) if i in losses else 5
        lengths.append(steps)
        y, seen = x, []
        for _ in range(steps):
            seen.append(PLANE.loss(i, y))
            y = y - L * PLANE.gradient(i, y)
        losses[i] = float(np.mean(seen))
        return y - x

    return client


def test_uneven_steps_are_half_whole_and_one_and_a_half() -> None:
    assert [uneven_steps(10).at(Now(client=number)) for number in range(4)] == [5.0, 10.0, 15.0, 5.0]
    assert uneven_steps(1).at(Now(client=0)) == 1.0
