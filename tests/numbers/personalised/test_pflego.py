"""PFLEGO against hand-worked fractions, a numpy reference and its own laws."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import fedtempo as ft
from tests.numbers.personalised import reference
from tests.numbers.personalised.setting import (
    BODY,
    CLIENTS,
    COMMON_HEAD,
    FULL,
    GIVEN_HEADS,
    HEAD,
    HEADS,
    NEWCOMER,
    PARTIAL,
    SIZES,
    START,
    THETA,
    assert_close,
    assert_personal,
    assert_same_bits,
    both_backends,
    both_participations,
    draw_head,
    draw_rows,
    run,
    run_scalar,
    scalar,
    tensors,
)

RATES = {"head_lr": 0.3, "server_lr": 0.2, "steps": 4}


def test_gradient_of_the_reference_agrees_with_differences() -> None:
    """(f(p + e) - f(p - e)) / 2e for every number of the network, with weights on the samples."""
    weights = np.array([0.3, 1.0, 0.2, 0.7, 2.0])
    analytic = reference.gradient(START, CLIENTS[2], weights)
    for name, value in START.items():
        for place in np.ndindex(value.shape):
            bump = np.zeros_like(value)
            bump[place] = 1e-6
            up, down = ({**START, name: value + sign * bump} for sign in (1, -1))
            difference = (
                np.mean(weights * (reference.losses(up, CLIENTS[2]) - reference.losses(down, CLIENTS[2]))) / 2e-6
            )
            assert analytic[name][place] == pytest.approx(difference, abs=1e-8)


@both_backends
def test_by_hand(backend: str) -> None:
    """f = mean (w theta - y)^2: A has y=1; B has y=2, 4, so f_B = (w theta - 3)^2 + 1.

    theta=1, w=2, beta=1/4, rho=1/8, tau=2. grad_w = 2 (w theta - a) theta and grad_theta = 2 (w theta - a) w,
    with a = 1 and 3; alpha = 1/3 and 2/3.

    Everybody (I/r = 1). A: grad_w = 2, w = 3/2. There (1, 3/2) is the joint gradient: w = 3/2 - 1/8 = 11/8.
    B: grad_w = -2, w = 5/2, joint gradient (-1, -5/2): w = 5/2 + 1/8 = 21/8.
    theta = 1 - 1/8 (1/3 * 3/2 - 2/3 * 5/2) = 1 + 7/48 = 55/48.

    Only A (I/r = 2): w = 3/2 - 2/8 = 5/4, theta = 1 - 2/8 * 1/3 * 3/2 = 7/8. B keeps w = 2.
    With alpha in the head step: w = 3/2 - 2/8 * 1/3 = 17/12. With alpha over the sampled: theta = 1 - 2/8 * 3/2 = 5/8.
    """
    start = {"body.weight": 1.0, "head.weight": 2.0}

    def outcome(cohort: list[int], **options: object) -> list[float]:
        algorithm = ft.algorithms.pflego(head_lr=1 / 4, server_lr=1 / 8, steps=2, **options)
        result = run_scalar(algorithm, [[1.0], [2.0, 4.0]], [cohort], start=start, backend=backend)
        heads = [scalar(result.client_state(i), "head.weight") for i in (0, 1)]
        return [scalar(result.params, "body.weight"), *heads]

    assert outcome([0, 1]) == pytest.approx([55 / 48, 11 / 8, 21 / 8], abs=1e-12)
    assert outcome([0]) == pytest.approx([7 / 8, 5 / 4, 2], abs=1e-12)
    assert outcome([0], alpha_in_head_step=True) == pytest.approx([7 / 8, 17 / 12, 2], abs=1e-12)
    assert outcome([0], alpha_over="sampled") == pytest.approx([5 / 8, 5 / 4, 2], abs=1e-12)


@both_backends
@both_participations
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha_in_head_step": True},
        {"alpha_over": "sampled"},
        {"adam": True},
        {"adam": True, "alpha_over": "sampled"},
    ],
    ids=["eq34", "eq5", "sampled", "adam", "adam-sampled"],
)
def test_against_reference(backend: str, cohorts: list[list[int]], steps: int, options: dict[str, object]) -> None:
    """tau - 1 times W <- W - beta gW; then (gW, gTheta) at one point, W <- W - rho (I/r) [alpha_i] gW,
    theta <- theta - rho G or torch's Adam on G, with G = (I/r) sum_S alpha_i gTheta_i.
    """
    rates = {**RATES, "steps": steps}
    theta, heads = reference.pflego(CLIENTS, THETA, HEADS, cohorts, **rates, **options)
    settings = {n: v for n, v in options.items() if n != "adam"}
    settings["server_optimizer"] = "adam" if "adam" in options else "sgd"
    result = run(ft.algorithms.pflego(**rates, **settings), cohorts, backend=backend, starts=GIVEN_HEADS)
    assert_close(result.params, theta)
    assert_personal(result, heads)


@both_backends
def test_bernoulli_participation(backend: str) -> None:
    """r = I rho = 4 * 2/5 in every round, whoever comes; a round in which nobody comes changes nothing."""
    result = run(
        ft.algorithms.pflego(**RATES),
        backend=backend,
        starts=GIVEN_HEADS,
        rounds=8,
        cohort=ft.cohort.bernoulli(0.4),
        seed=3,
    )
    cohorts = [list(report.clients) for report in result.history]
    assert {len(c) for c in cohorts} >= {0, 1, 2}
    theta, heads = reference.pflego(CLIENTS, THETA, HEADS, cohorts, **RATES, expected=4 * 0.4)
    assert_close(result.params, theta)
    assert_personal(result, heads)


@both_backends
def test_batch_size_does_not_matter(backend: str) -> None:
    """PFLEGO works on all of a client's rows in every step, whatever batch size the run has for other algorithms."""
    results = [run(ft.algorithms.pflego(**RATES), PARTIAL, backend=backend, batch_size=size) for size in (None, 2)]
    assert_same_bits(results[0].params, results[1].params)


@both_backends
def test_held_out_clients_do_not_count(backend: str) -> None:
    """I and the sum under alpha_i are over the clients that can take part; client 3 is held out."""
    data = replace(ft.data.FederatedData.from_clients(CLIENTS), held_out=np.array([3]))
    cohorts = [[0, 2], [1], [0, 1, 2]]
    result = run(ft.algorithms.pflego(**RATES), cohorts, backend=backend, data=data)
    theta, heads = reference.pflego(CLIENTS[:3], THETA, dict.fromkeys(range(3), COMMON_HEAD), cohorts, **RATES)
    assert_close(result.params, theta)
    assert_personal(result, heads)


@both_backends
def test_newcomer_fits_a_new_head_on_the_frozen_body(backend: str) -> None:
    """tau steps W <- W - beta gW from the common first head, theta as trained."""
    result = run(ft.algorithms.pflego(**RATES), PARTIAL, backend=backend, starts=GIVEN_HEADS)
    theta, _ = reference.pflego(CLIENTS, THETA, HEADS, PARTIAL, **RATES)
    expected = reference.steps_on(HEAD, {**theta, **COMMON_HEAD}, NEWCOMER, RATES["head_lr"], RATES["steps"])
    model = result.personalize(NEWCOMER)
    assert_close(model.shared, theta)
    assert_close(model.personal, reference.only(expected, HEAD))
    assert_close({"y": model(tensors({"x": NEWCOMER[0]})["x"])}, {"y": reference.logits(expected, NEWCOMER[0])})


@both_backends
def test_everybody_and_one_step_is_gradient_descent(backend: str) -> None:
    """With tau = 1, r = I and alpha in both, a round is psi <- psi - rho grad L, L = sum_i alpha_i f_i(W_i, theta)."""
    algorithm = ft.algorithms.pflego(head_lr=0.3, server_lr=0.5, steps=1, alpha_in_head_step=True)
    result = run(algorithm, FULL, backend=backend, starts=GIVEN_HEADS)
    theta, heads, total = THETA, dict(HEADS), sum(SIZES)
    for _ in FULL:
        gradients = [reference.gradient({**theta, **heads[i]}, CLIENTS[i]) for i in range(4)]
        heads = {i: reference.plus(heads[i], gradients[i], -0.5 * SIZES[i] / total) for i in range(4)}
        for g, size in zip(gradients, SIZES, strict=True):
            theta = reference.plus(theta, g, -0.5 * size / total)
    assert_close(result.params, theta)
    assert_personal(result, heads)


@both_backends
def test_stochastic_gradient_is_unbiased(backend: str) -> None:
    """The mean of (psi - psi+) / rho over all 6 cohorts of 2 of 4 clients is grad L at psi, theta and every W_i."""
    rho = 0.5
    algorithm = ft.algorithms.pflego(head_lr=0.3, server_lr=rho, steps=1, alpha_in_head_step=True)
    cohorts = [list(pair) for pair in combinations(range(4), 2)]
    results = [run(algorithm, [cohort], backend=backend, starts=GIVEN_HEADS) for cohort in cohorts]
    gradients = [reference.gradient({**THETA, **HEADS[i]}, CLIENTS[i]) for i in range(4)]
    alphas = [n / sum(SIZES) for n in SIZES]
    for name in BODY:
        mean = np.mean([(THETA[name] - r.params[name].numpy()) / rho for r in results], axis=0)
        np.testing.assert_allclose(mean, sum(a * g[name] for a, g in zip(alphas, gradients, strict=True)), atol=1e-12)
    for i in range(4):
        for name in HEAD:
            mean = np.mean([(HEADS[i][name] - r.client_state(i)[name].numpy()) / rho for r in results], axis=0)
            np.testing.assert_allclose(mean, alphas[i] * gradients[i][name], atol=1e-12)


@both_backends
def test_decay_within_the_round_on_the_head_steps(backend: str) -> None:
    """Head step j = 0 .. tau - 2 of every round has the rate beta 0.6^j; the last step keeps rho (I/r)."""
    algorithm = ft.algorithms.pflego(head_lr=ft.schedules.per_step(0.5, 0.6), server_lr=0.2, steps=5)
    result = run(algorithm, PARTIAL, backend=backend, starts=GIVEN_HEADS)
    rates = {"head_lr": lambda t, j: 0.5 * 0.6**j, "server_lr": 0.2, "steps": 5}
    theta, heads = reference.pflego(CLIENTS, THETA, HEADS, PARTIAL, **rates)
    assert_close(result.params, theta)
    assert_personal(result, heads)


@both_backends
@both_participations
def test_heads_of_different_sizes(backend: str, cohorts: list[list[int]]) -> None:
    """Clients with 2, 3, 4 and 2 classes of their own: each softmax runs over the client's classes alone."""
    outputs, random = [2, 3, 4, 2], np.random.default_rng(5)
    clients = [draw_rows(random, n, k) for n, k in zip(SIZES, outputs, strict=True)]
    heads = {i: draw_head(random, k) for i, k in enumerate(outputs)}
    settings = {"clients": clients, "outputs": outputs, "start": THETA, "starts": heads, "backend": backend}
    result = run(ft.algorithms.pflego(**RATES), cohorts, **settings)
    theta, expected = reference.pflego(clients, THETA, heads, cohorts, **RATES)
    assert_close(result.params, theta)
    assert_personal(result, expected)
