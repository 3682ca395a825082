"""FedPer, FedRep, FedBABU and FedRecon against hand-worked fractions and a numpy reference."""

from collections.abc import Callable

import numpy as np
import pytest

import fedtempo as ft
from tests.numbers.personalised import reference
from tests.numbers.personalised.setting import (
    BODY,
    CLIENTS,
    COMMON_HEAD,
    GIVEN_HEADS,
    HEAD,
    HEADS,
    NEWCOMER,
    PARTIAL,
    SIZES,
    THETA,
    assert_close,
    assert_personal,
    both_backends,
    both_participations,
    draw_head,
    draw_rows,
    run,
    run_scalar,
    scalar,
    tensors,
)

SCALAR_START = {"body.weight": 1.0, "head.weight": 2.0}
TARGETS = [[1.0], [2.0, 4.0]]


def body_and_heads(algorithm: ft.Algorithm, backend: str, targets: list[list[float]] = TARGETS) -> list[float]:
    result = run_scalar(algorithm, targets, [[0, 1]], start=SCALAR_START, backend=backend)
    kept = [result.client_state(i) for i in (0, 1)]
    return [scalar(result.params, "body.weight"), *(scalar(own, "head.weight") for own in kept if own)]


@both_backends
def test_fedper_by_hand(backend: str) -> None:
    """f = (w theta - a)^2 + const with a = 1 (one sample), 3 (two samples); theta=1, w=2, l=1/4, K=1.

    A: gradient (w, theta) = (2, 4): w = 3/2, theta_A = 0. B: (-2, -4): w = 5/2, theta_B = 2.
    theta = (1 * 0 + 2 * 2) / 3 = 4/3.
    """
    assert body_and_heads(ft.algorithms.fedper(lr=1 / 4, steps=1), backend) == pytest.approx(
        [4 / 3, 3 / 2, 5 / 2], abs=1e-12
    )


@both_backends
def test_fedrep_by_hand(backend: str) -> None:
    """As above with one head step, then one body step. A: w = 3/2, grad_theta = 2 * 1/2 * 3/2, theta_A = 1 - 3/8 = 5/8.

    B: w = 5/2, grad_theta = 2 * (-1/2) * 5/2, theta_B = 1 + 5/8 = 13/8. Uniform mean: 9/8.
    """
    algorithm = ft.algorithms.fedrep(lr=1 / 4, head_steps=1, body_steps=1)
    assert body_and_heads(algorithm, backend) == pytest.approx([9 / 8, 3 / 2, 5 / 2], abs=1e-12)


@both_backends
def test_fedbabu_by_hand(backend: str) -> None:
    """The head stays at 2: theta_A = 1 - 4/4 = 0, theta_B = 1 + 4/4 = 2, theta = 4/3; no personal state."""
    assert body_and_heads(ft.algorithms.fedbabu(lr=1 / 4, steps=1), backend) == pytest.approx([4 / 3], abs=1e-12)


@both_backends
def test_fedrecon_by_hand(backend: str) -> None:
    """A: support y=1, query y=2. B: support y=3, 3, query y=4, 4. theta=1, w=2, all rates 1/4, one step each.

    A: w = 3/2 on support; on query grad_theta = 2 (3/2 - 2) 3/2 = -3/2, theta_A = 11/8.
    B: w = 5/2; grad_theta = 2 (5/2 - 4) 5/2 = -15/2, theta_B = 23/8. Weights 1 and 2 query rows:
    theta = (11/8 + 2 * 23/8) / 3 = 19/8. Nothing is kept: the first heads remain 2.
    """
    algorithm = ft.algorithms.fedrecon(lr=1 / 4, head_lr=1 / 4, head_steps=1)
    assert body_and_heads(algorithm, backend, [[1.0, 2.0], [3.0, 3.0, 4.0, 4.0]]) == pytest.approx(
        [19 / 8, 2, 2], abs=1e-12
    )


@both_backends
def test_fedrecon_stateful_by_hand(backend: str) -> None:
    """One head step, then one body gradient at the new head: A: w = 3/2, g = 3/2. B: w = 5/2, g = -5/2.

    theta = 1 - 1/8 (1/3 * 3/2 - 2/3 * 5/2) = 55/48, and w = 3/2, 5/2 are kept.
    """
    algorithm = ft.algorithms.fedrecon_stateful(head_lr=1 / 4, server_lr=1 / 8, head_steps=1)
    assert body_and_heads(algorithm, backend) == pytest.approx([55 / 48, 3 / 2, 5 / 2], abs=1e-12)


Reference = Callable[..., tuple[reference.Arrays, reference.Heads]]
SPLIT: dict[str, tuple[ft.Algorithm, Reference, dict[str, object]]] = {
    "fedper": (ft.algorithms.fedper(lr=0.3, steps=3), reference.fedper, {"lr": 0.3, "steps": 3}),
    "fedrep": (
        ft.algorithms.fedrep(lr=0.3, head_steps=3, body_steps=2),
        reference.fedrep,
        {"lr": 0.3, "head_steps": 3, "body_steps": 2},
    ),
    "fedrep-two-rates-by-samples": (
        ft.algorithms.fedrep(lr=0.2, head_steps=1, body_steps=3, head_lr=0.3, weighting="samples"),
        reference.fedrep,
        {"lr": 0.2, "head_steps": 1, "body_steps": 3, "head_lr": 0.3, "by_samples": True},
    ),
    "fedrecon_stateful": (
        ft.algorithms.fedrecon_stateful(head_lr=0.3, server_lr=0.2, head_steps=4),
        reference.fedrecon_stateful,
        {"head_lr": 0.3, "server_lr": 0.2, "head_steps": 4},
    ),
    "fedrecon_stateful-adam": (
        ft.algorithms.fedrecon_stateful(head_lr=0.3, server_lr=0.2, head_steps=4, server_optimizer="adam"),
        reference.fedrecon_stateful,
        {"head_lr": 0.3, "server_lr": 0.2, "head_steps": 4, "adam": True},
    ),
}


@both_backends
@both_participations
@pytest.mark.parametrize("name", SPLIT)
def test_kept_heads_against_reference(backend: str, cohorts: list[list[int]], name: str) -> None:
    """FedPer: (W, theta) <- (W, theta) - l g, theta = sum n_i theta_i / n_S. FedRep: W first on the received theta,
    then theta under the new W, uniform mean. FedRecon (stateful): tau steps on W, then
    theta <- theta - rho sum (n_i / n_S) g_i.
    """
    algorithm, by_reference, settings = SPLIT[name]
    theta, heads = by_reference(CLIENTS, THETA, HEADS, cohorts, **settings)
    result = run(algorithm, cohorts, backend=backend, starts=GIVEN_HEADS)
    assert_close(result.params, theta)
    assert_personal(result, heads)


@both_backends
@pytest.mark.parametrize("name", SPLIT)
def test_heads_of_different_sizes(backend: str, name: str) -> None:
    """Clients with 4, 2, 3 and 2 classes of their own: the same updates, each with its own softmax."""
    algorithm, by_reference, settings = SPLIT[name]
    outputs, random = [4, 2, 3, 2], np.random.default_rng(6)
    clients = [draw_rows(random, n, k) for n, k in zip(SIZES, outputs, strict=True)]
    heads = {i: draw_head(random, k) for i, k in enumerate(outputs)}
    result = run(algorithm, PARTIAL, clients=clients, outputs=outputs, start=THETA, starts=heads, backend=backend)
    theta, expected = by_reference(clients, THETA, heads, PARTIAL, **settings)
    assert_close(result.params, theta)
    assert_personal(result, expected)


@both_backends
@both_participations
def test_fedbabu_against_reference(backend: str, cohorts: list[list[int]]) -> None:
    """theta <- theta - l grad_theta f_i(theta, W0), averaged by samples; W0 stays to the last bit."""
    result = run(ft.algorithms.fedbabu(lr=0.3, steps=3), cohorts, backend=backend)
    theta = reference.fedbabu(CLIENTS, THETA, COMMON_HEAD, cohorts, lr=0.3, steps=3)
    assert_close(result.params, {**theta, **COMMON_HEAD})
    assert_close(reference.only(result.params, HEAD), COMMON_HEAD, 0.0)
    assert all(result.client_state(i) == {} for i in range(4))


@both_backends
@both_participations
@pytest.mark.parametrize(
    "options",
    [{}, {"same_data": True}, {"server_lr": 0.5}, {"server_lr": 0.1, "adam": True}],
    ids=["split", "same", "rate", "adam"],
)
def test_fedrecon_against_reference(backend: str, cohorts: list[list[int]], options: dict[str, object]) -> None:
    """W fresh in every round, k_r steps on the support rows; k_u steps of theta on the query rows; theta moves by
    the mean displacement, weighted by query rows times steps, times the server rate, or by Adam on minus it.
    """
    rates = {"lr": 0.3, "head_lr": 0.4, "head_steps": 3, "body_steps": 2}
    theta = reference.fedrecon(CLIENTS, THETA, HEADS, cohorts, **rates, **options)
    settings = {n: v for n, v in options.items() if n != "adam"}
    settings["server_optimizer"] = "adam" if "adam" in options else "sgd"
    result = run(ft.algorithms.fedrecon(**rates, **settings), cohorts, backend=backend, starts=GIVEN_HEADS)
    assert_close(result.params, theta)
    assert_personal(result, HEADS, 0.0)


def new_model(name: str, theta: reference.Arrays) -> reference.Arrays:
    """What a held-out client should use, from the trained body and the common first head."""
    start = {**theta, **COMMON_HEAD}
    support, _ = reference.halves(NEWCOMER)
    return {
        "fedper": lambda: reference.steps_on(BODY + HEAD, start, NEWCOMER, 0.3, 3),
        "fedrep": lambda: reference.steps_on(HEAD, start, NEWCOMER, 0.3, 3),
        "fedbabu": lambda: reference.steps_on(BODY + HEAD, start, NEWCOMER, 0.3, 1),
        "fedrecon": lambda: reference.steps_on(HEAD, start, support, 0.4, 3),
        "fedrecon-same": lambda: reference.steps_on(HEAD, start, NEWCOMER, 0.4, 3),
        "fedrecon_stateful": lambda: reference.steps_on(HEAD, start, NEWCOMER, 0.3, 4),
    }[name]()


NEWCOMER_ALGORITHMS = {
    **{name: SPLIT[name][0] for name in ("fedper", "fedrep", "fedrecon_stateful")},
    "fedbabu": ft.algorithms.fedbabu(lr=0.3, steps=3),
    "fedrecon": ft.algorithms.fedrecon(lr=0.3, head_lr=0.4, head_steps=3, body_steps=2),
    "fedrecon-same": ft.algorithms.fedrecon(lr=0.3, head_lr=0.4, head_steps=3, body_steps=2, same_data=True),
}


@both_backends
@pytest.mark.parametrize("name", NEWCOMER_ALGORITHMS)
def test_newcomer(backend: str, name: str) -> None:
    """FedPer: a new head, K joint steps. FedRep: a new head, head steps only. FedRecon: a head rebuilt on support rows.
    FedBABU: fine-tuning of a copy, one epoch (here one full-batch step) of body and head.
    """
    result = run(NEWCOMER_ALGORITHMS[name], PARTIAL, backend=backend)
    theta = {n: result.params[n].numpy() for n in BODY}
    expected = new_model(name, theta)
    model = result.personalize(NEWCOMER)
    assert_close({**model.shared, **model.personal}, expected)
    assert_close({"y": model(tensors({"x": NEWCOMER[0]})["x"])}, {"y": reference.logits(expected, NEWCOMER[0])})
