"""Laws of single steps and of what is kept between rounds: recursions that papers state beside their algorithms.

The problems are those of `tests/numbers/single_model/problem.py`, all rows in one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.algorithms.parts.displacement_history import MEMORY
from fedtempo.client.transforms import momentum
from fedtempo.params import without_prefix
from fedtempo.schedules import qsr
from tests.numbers.single_model.problem import HAND, PLANE, START, ZERO, A, B, Regression, assert_same, flat, run, trace

L = 0.05
EVERYBODY, SOME = [[0, 1, 2, 3]] * 4, [[0, 2], [1, 3], [0, 1, 3], [2]]
sgd, adam, adamw = ft.optimizers.sgd, ft.optimizers.adam, ft.optimizers.adamw


def once(**settings: object) -> ft.Algorithm:
    return a.fedavg(**{"lr": L, "steps": 1, **settings})  # type: ignore[arg-type]


ONE_STEP = {
    "momentum that starts afresh": (once(optimizer=sgd(0.7)), a.fedsgd(L)),
    "Nesterov that starts afresh": (once(optimizer=sgd(0.7, nesterov=True)), a.fedsgd(1.7 * L)),
    "momentum that is kept": (once(optimizer=sgd(0.7, state="keep")), a.fedavgm(L, 1, momentum=0.7)),
    "momentum that is averaged": (once(optimizer=sgd(0.7, state="average")), a.fedavgm(L, 1, momentum=0.7)),
    "AdamW without decay": (once(steps=3, optimizer=adamw(weight_decay=0.0)), once(steps=3, optimizer=adam())),
    "FedNova": (a.fednova(L, 1), a.fedsgd(L, weighting="samples")),
    "QSR that never grows": (once(steps=qsr(L, alpha=0.0)), a.fedsgd(L)),
    "DiLoCo with one plain step": (
        a.diloco(L, 1, server_lr=0.6, momentum=0.8, optimizer=sgd()),
        a.with_server(a.fedsgd(L), momentum(0.8, nesterov=True), 0.6),
    ),
}


@pytest.mark.parametrize("name", ONE_STEP)
def test_one_step_with_everybody(name: str) -> None:
    one, other = (run(PLANE, algorithm, START, EVERYBODY) for algorithm in ONE_STEP[name])
    assert_same(one, trace(other))


def test_diloco_is_nesterovs_descent_on_the_mean_loss() -> None:
    """K = 1 and SGD(l) inside: u <- m u + l grad, x <- x - c (l grad + m u), the gradient of the mean loss."""
    x, u, models = START, 0.0, []
    for _ in EVERYBODY:
        step = L * np.mean([PLANE.gradient(i, x) for i in range(4)], axis=0)
        u = 0.9 * u + step
        x = x - 0.7 * (step + 0.9 * u)
        models.append(x)
    assert_same(run(PLANE, a.diloco(L, 1, optimizer=sgd()), START, EVERYBODY), np.array(models))


def test_fedcms_direction_is_momentum_on_gradients() -> None:
    """K = 1, everybody: M <- alpha mean grad f_i(x) + (1 - alpha) M."""
    result = run(PLANE, a.fedcm(L, 1, alpha=0.3), START, EVERYBODY)
    direction = np.zeros(3)
    for x in [START, *trace(result)[:-1]]:
        direction = 0.3 * np.mean([PLANE.gradient(i, x) for i in range(4)], axis=0) + 0.7 * direction
    np.testing.assert_allclose(flat(result.server_state["direction"]), direction, rtol=1e-12)


def memory(result: ft.Result, client: int) -> np.ndarray:
    return flat(without_prefix(result.client_state(client), MEMORY))


def test_feddyns_memory_follows_the_gradient() -> None:
    """K = 1: g_i <- (1 - alpha l) g_i + alpha l grad f_i(x), with g_i = -alpha s_i; who is absent keeps it."""
    alpha = 0.6
    result = run(PLANE, a.feddyn(L, 1, alpha=alpha), START, SOME)
    expected = np.zeros((4, 3))
    for cohort, x in zip(SOME, [START, *trace(result)[:-1]], strict=True):
        for i in cohort:
            expected[i] = (1 - alpha * L) * expected[i] + alpha * L * PLANE.gradient(i, x)
    kept = np.array([-alpha * memory(result, i) for i in range(4)])
    np.testing.assert_allclose(kept, expected, rtol=1e-11, atol=1e-12)


def test_fedspeeds_memories_add_up_to_all_displacements() -> None:
    """The server that keeps their mean knows it from displacements alone."""
    result = run(PLANE, a.fedspeed(L, 3, history="all"), START, SOME)
    memories = np.array([memory(result, i) for i in range(4)])
    np.testing.assert_allclose(flat(result.server_state["dynamic"]["history"]), memories.mean(0), rtol=1e-12)


def test_fedsams_gradient_on_a_quadratic() -> None:
    """grad f(y + rho g / |g|) = g + rho H g / |g|."""
    g = PLANE.gradient(1, START)
    rows = np.c_[PLANE.clients[1][0], np.ones(5)]
    hessian = 2 * rows.T @ rows / 5
    up = g + 0.3 * hessian @ g / np.linalg.norm(g)
    assert_same(run(PLANE, a.fedsam(once(), rho=0.3), START, [[1]]), (START - L * up)[None])


def test_delta_sgds_rate_is_inverse_to_the_curvature() -> None:
    """A's curvature along its gradient is 4, B's is 2: after the first step the rates are gamma / 8 and gamma / 4."""
    for client, curvature in ((A, 4.0), (B, 2.0)):
        algorithm = a.delta_sgd(a.fedavg(0.9, 4), gamma=0.5, delta=1.0)
        rates = run(HAND, algorithm, ZERO, [[client]]).history[0].measurements["rate"]
        assert rates == pytest.approx((0.9 + 3 * 0.5 / (2 * curvature)) / 4, rel=1e-9)


def test_delta_sgds_rate_grows_by_no_more_than_its_root() -> None:
    """Without curvature eta_k = eta_0 prod sqrt(1 + delta theta), the most that it can become."""
    bound, theta, most = 0.01, 1.0, []
    for _ in range(6):
        most.append(bound)
        theta = np.sqrt(1 + 0.5 * theta)
        bound *= theta
    for gamma in (None, 2.0):
        algorithm = a.delta_sgd(a.fedavg(0.01, 6), gamma=gamma, delta=0.5)
        rate = run(PLANE, algorithm, START, [[0]]).history[0].measurements["rate"]
        assert rate <= np.mean(most) * (1 + 1e-12)
        assert gamma is not None or rate == pytest.approx(np.mean(most), rel=1e-12)


def test_feddecsps_never_rises_but_for_its_count() -> None:
    """c_n eta_n never increases, c_n = c sqrt(n + 1)."""
    fell = False
    for client in range(4):
        history = run(PLANE, a.feddecsps(a.fedavg(2.0, 1), c=0.5), START, [[client]] * 8).history
        products = [r.measurements["rate"] * 0.5 * np.sqrt(n + 1) for n, r in enumerate(history)]
        assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(products))
        fell = fell or products[-1] < 0.99 * products[0]
    assert fell


def test_orthogonal_rounds_leave_fedhypers_rates_alone() -> None:
    """Two clients move one weight each, in turn: <D_t, D_(t-1)> = 0 in every round."""
    sides = tuple((np.array([direction, -direction]), np.array([1.0, -1.0])) for direction in np.eye(2))
    problem, cohorts = Regression(sides), [[0], [1], [0], [1]]
    for wrap, name, first in ((a.fedhyper_global, "server_lr", 1.0), (a.fedhyper_server, "client_lr", L)):
        history = run(problem, wrap(once(), step=50.0), np.zeros(3), cohorts).history
        assert [report.measurements[name] for report in history] == pytest.approx([first] * 4, abs=1e-12)


@pytest.mark.parametrize("wrap", [a.fedhyper_global, a.fedhyper_server])
def test_fedhypers_rates_stay_within_their_bounds(wrap: Callable[..., ft.Algorithm]) -> None:
    name, first = ("server_lr", 1.0) if wrap is a.fedhyper_global else ("client_lr", L)
    for step in (1e4, -1e4):
        history = run(PLANE, wrap(once(steps=3), step=step, smallest=0.5, largest=2.0), START, EVERYBODY).history
        rates = [report.measurements[name] / first for report in history]
        assert min(rates) >= 0.5 - 1e-12 and max(rates) <= 2.0 + 1e-12
        assert any(rate == pytest.approx(bound) for rate in rates for bound in (0.5, 2.0))
