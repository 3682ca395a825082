"""Ditto, pFedMe and local_only against hand-worked fractions and a numpy reference."""

from math import ceil

import numpy as np
import pytest
from torch import nn

import fedtempo as ft
from tests.numbers.personalised import reference
from tests.numbers.personalised import reference_models as models
from tests.numbers.personalised.setting import (
    CLIENTS,
    NEWCOMER,
    PARTIAL,
    START,
    Arrays,
    assert_close,
    assert_personal,
    assert_same_bits,
    both_backends,
    both_participations,
    run,
    run_scalar,
    scalar,
    tensors,
)

_random = np.random.default_rng(11)
OTHER = {name: value + 0.3 * _random.normal(size=value.shape) for name, value in START.items()}
"""A first personal model for client 1 that is not the shared one."""
GIVEN = {1: OTHER}
PERSONAL: dict[int, Arrays] = {i: GIVEN.get(i, START) for i in range(4)}
TARGETS = [[1.0], [5.0, 5.0]]
DITTO = {"lr": 0.3, "steps": 2, "lam": 0.7, "personal_lr": 0.2, "personal_steps": 3}
either_start = pytest.mark.parametrize(
    "warm_start",
    [
        True,
        False,
    ],
)
PFEDME = {"lr": 0.1, "personal_lr": 0.2, "lam": 1.5, "inner_steps": 3, "local_rounds": 2}


def by_hand(algorithm: ft.Algorithm, backend: str, rounds: int = 1) -> list[float]:
    """x and both personal models, where the model is one number x: f_i = (x - a_i)^2, a = 1 and 5, x = 2 at first."""
    one_number = nn.Linear(1, 1, bias=False)
    result = run_scalar(
        algorithm, TARGETS, [[0, 1]] * rounds, start={"weight": 2.0}, model=one_number, backend=backend, starts={}
    )
    return [scalar(result.params, "weight"), *(scalar(result.client_state(i), "weight") for i in (0, 1))]


@both_backends
def test_ditto_by_hand(backend: str) -> None:
    """lam=1, all rates 1/4, one shared and two personal steps. v <- v - 1/4 (2 (v - a) + (v - x)) with x = 2 received.

    A: v = 2 - 1/2 = 3/2, then 3/2 - 1/4 (1 - 1/2) = 11/8. B: v = 2 + 3/2 = 7/2, then 7/2 - 1/4 (-3 + 3/2) = 31/8.
    Shared: x_A = 2 - 1/2 = 3/2, x_B = 2 + 3/2 = 7/2, uniform mean 5/2.
    """
    algorithm = ft.algorithms.ditto(lr=1 / 4, steps=1, lam=1.0, personal_steps=2)
    assert by_hand(algorithm, backend) == pytest.approx([5 / 2, 11 / 8, 31 / 8], abs=1e-12)


@both_backends
def test_pfedme_by_hand(backend: str) -> None:
    """lam=1, K=2, R=1, eta_p=1/4, eta=1/2, beta=1/2: theta as in Ditto's case, 11/8 and 31/8.

    w_A = 2 - 1/2 (2 - 11/8) = 27/16, w_B = 2 + 1/2 * 15/8 = 47/16, mean 37/16; x = (2 + 37/16) / 2 = 69/32.
    """
    algorithm = ft.algorithms.pfedme(lr=1 / 2, personal_lr=1 / 4, lam=1.0, inner_steps=2, local_rounds=1, beta=1 / 2)
    assert by_hand(algorithm, backend) == pytest.approx([69 / 32, 11 / 8, 31 / 8], abs=1e-12)


@both_backends
def test_local_only_by_hand(backend: str) -> None:
    """A step of rate 1/4 on (x - a)^2 halves x - a: after 3 rounds of 2 steps a + (2 - a) / 64 = 65/64 and 5 - 3/64."""
    algorithm = ft.algorithms.local_only(lr=1 / 4, steps=2)
    assert by_hand(algorithm, backend, rounds=3)[1:] == pytest.approx([65 / 64, 317 / 64], abs=1e-12)


@both_backends
@both_participations
def test_ditto_against_reference(backend: str, cohorts: list[list[int]]) -> None:
    """v_i <- v_i - eta_p (grad f_i(v_i) + lam (v_i - x_t)); beside it FedAvg of x with the uniform mean."""
    x, personal = models.ditto(CLIENTS, START, PERSONAL, cohorts, **DITTO)
    result = run(ft.algorithms.ditto(**DITTO), cohorts, backend=backend, starts=GIVEN)
    assert_close(result.params, x)
    assert_personal(result, personal)


@both_backends
def test_decaying_k_in_dittos_personal_phase(backend: str) -> None:
    """K_t = ceil(5 * 0.6^t) personal steps in round t: 5, 3, 2, 2, 1; the shared steps stay at 2."""
    counts = [ceil(5 * 0.6**t) for t in range(len(PARTIAL))]
    assert counts == [5, 3, 2, 2, 1]
    algorithm = ft.algorithms.ditto(**{**DITTO, "personal_steps": ft.schedules.decaying_k(5, 0.6)})
    x, personal = models.ditto(CLIENTS, START, PERSONAL, PARTIAL, **{**DITTO, "personal_steps": lambda t: counts[t]})
    result = run(algorithm, PARTIAL, backend=backend, starts=GIVEN)
    assert_close(result.params, x)
    assert_personal(result, personal)


@both_backends
@both_participations
@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize(("l2", "beta"), [(0.0, 1.0), (0.01, 0.4)])
def test_pfedme_against_reference(
    backend: str, cohorts: list[list[int]], warm_start: bool, l2: float, beta: float
) -> None:
    """R times: K steps theta <- theta - eta_p (grad f_i + l2 theta + lam (theta - w)), w <- w - eta lam (w - theta).

    theta starts at x and is carried on (`warm_start`), or starts at w each time. x <- (1 - beta) x + beta mean w_i.
    """
    options = {**PFEDME, "warm_start": warm_start, "l2": l2, "beta": beta}
    x, _ = models.pfedme(CLIENTS, START, {}, cohorts, **options)
    assert_close(run(ft.algorithms.pfedme(**options), cohorts, backend=backend).params, x)


@both_backends
@both_participations
@either_start
def test_pfedme_keeps_theta(backend: str, cohorts: list[list[int]], warm_start: bool) -> None:
    """The personal model is theta_i after the last inner steps, and not w_i."""
    options = {**PFEDME, "warm_start": warm_start, "l2": 0.01, "beta": 0.4}
    _, personal = models.pfedme(CLIENTS, START, {}, cohorts, **options)
    assert_personal(run(ft.algorithms.pfedme(**options), cohorts, backend=backend), personal)


@both_backends
@both_participations
def test_local_only_against_reference(backend: str, cohorts: list[list[int]]) -> None:
    """v_i <- v_i - l grad f_i(v_i) whenever client i takes part; the shared model never moves and nothing is sent."""
    personal = models.local_only(CLIENTS, START, PERSONAL, cohorts, lr=0.3, steps=3)
    result = run(ft.algorithms.local_only(lr=0.3, steps=3), cohorts, backend=backend, starts=GIVEN)
    assert_close(result.params, START, 0.0)
    assert_personal(result, personal)


def assert_serves(result: ft.Result, expected: Arrays) -> None:
    """The newcomer's own model, and that it is the one which answers."""
    model = result.personalize(NEWCOMER)
    assert_close(model.personal, expected)
    assert_close({"y": model(tensors({"x": NEWCOMER[0]})["x"])}, {"y": reference.logits(expected, NEWCOMER[0])})


@both_backends
def test_newcomer_of_ditto(backend: str) -> None:
    """v = x as trained, then s proximal steps towards x."""
    result = run(ft.algorithms.ditto(**DITTO), PARTIAL, backend=backend, starts=GIVEN)
    x, _ = models.ditto(CLIENTS, START, PERSONAL, PARTIAL, **DITTO)
    assert_serves(result, models.proximal_steps(x, x, NEWCOMER, 0.2, 0.7, 3))


@both_backends
@either_start
def test_newcomer_of_pfedme(backend: str, warm_start: bool) -> None:
    """One round's R x K inner steps from x; the theta of that round."""
    local = {**PFEDME, "warm_start": warm_start, "l2": 0.0}
    result = run(ft.algorithms.pfedme(**local), PARTIAL, backend=backend)
    x, _ = models.pfedme(CLIENTS, START, {}, PARTIAL, **local)
    assert_serves(result, models.pfedme_client(x, NEWCOMER, **local)[1])


@both_backends
def test_newcomer_of_local_only(backend: str) -> None:
    """Alone from the common start, as many steps as an existing client takes in `newcomer_rounds` rounds."""
    result = run(ft.algorithms.local_only(lr=0.3, steps=3, newcomer_rounds=4), PARTIAL, backend=backend)
    assert_serves(result, reference.steps_on(models.ALL, START, NEWCOMER, 0.3, 12))


@both_backends
@pytest.mark.parametrize("batch_size", [None, 2])
def test_ditto_without_attraction_is_local_training(backend: str, batch_size: int | None) -> None:
    """lam = 0: v_i <- v_i - eta grad f_i(v_i), to the last bit what local_only does on the same batches."""
    ditto = ft.algorithms.ditto(lr=0.3, steps=3, lam=0.0)
    alone = ft.algorithms.local_only(lr=0.3, steps=3)
    results = [run(a, PARTIAL, backend=backend, batch_size=batch_size, starts=GIVEN) for a in (ditto, alone)]
    for client in range(4):
        assert_same_bits(results[0].client_state(client), results[1].client_state(client))


@both_backends
@pytest.mark.parametrize("batch_size", [None, 2])
def test_dittos_shared_model_is_fedavg(backend: str, batch_size: int | None) -> None:
    """The personal phase leaves x, and the batches x is trained on, as they are without it."""
    algorithms = ft.algorithms.ditto(**DITTO), ft.algorithms.fedavg(lr=0.3, steps=2)
    results = [run(a, PARTIAL, backend=backend, batch_size=batch_size) for a in algorithms]
    assert_same_bits(results[0].params, results[1].params)


@both_backends
def test_pfedmes_fixed_point(backend: str) -> None:
    """Many inner steps solve min f_i(theta) + lam/2 ||theta - x||^2: grad f_i(theta) + lam (theta - x) = 0."""
    local = {"lr": 0.1, "personal_lr": 0.3, "lam": 1.5, "inner_steps": 300, "local_rounds": 1}
    result = run(ft.algorithms.pfedme(**local), [[0, 1, 2, 3]], backend=backend)
    for client in range(4):
        theta = {n: t.numpy() for n, t in result.client_state(client).items()}
        g = reference.gradient(theta, CLIENTS[client])
        for name, value in theta.items():
            np.testing.assert_allclose(g[name] + 1.5 * (value - START[name]), 0.0, atol=1e-12)
            assert np.abs(value - START[name]).max() > 1e-3
