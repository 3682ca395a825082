"""What the papers' own methods have beyond their main form, against numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.client.adaptive import bounded_decay, clipped_together, gradient_clipped
from fedtempo.client.compression.packing import error_memory_in
from fedtempo.schedules import per_round
from tests.numbers.personalised import reference, reference_models
from tests.numbers.personalised.setting import (
    BODY,
    CLIENTS,
    COMMON_HEAD,
    NEWCOMER,
    NORM,
    PARTIAL,
    THETA,
    NormNet,
    assert_close,
    assert_personal,
    assert_same_bits,
    first_norm_state,
)
from tests.numbers.personalised.setting import START as NETWORK
from tests.numbers.personalised.setting import run as run_network
from tests.numbers.single_model.problem import PLANE, SOFTMAX, START, assert_same, flat, run
from tests.numbers.single_model.reference import GROWTH, Adaptive, Control, averaging, federate, sgd
from tests.slow import slow_but

COHORTS = {"everybody": [[0, 1, 2, 3]] * 5, "some": [[0, 2], [1, 3], [0, 1, 3], [2], [1, 2]]}
BACKENDS = ("serial", "vectorised")
both_cohorts = pytest.mark.parametrize("cohorts", COHORTS.values(), ids=COHORTS)
both_backends = pytest.mark.parametrize("backend", BACKENDS)


@both_backends
@both_cohorts
def test_scaffolds_control_by_samples(cohorts: list[list[int]], backend: str) -> None:
    """c = sum_i (n_i / n) c_i over all clients, whatever the weights of the models."""

    class BySamples(Control):
        def closing(self, server):
            def step(t, x, deltas, weights):
                x = server(t, x, deltas, weights)
                shares = np.array(PLANE.sizes) / sum(PLANE.sizes)
                self.c = sum(p * c for p, c in zip(shares, self.of, strict=True))
                return x

            return step

    for weighting in ("uniform", "samples"):
        control = BySamples(PLANE, 3)
        expected = federate(
            PLANE, START, cohorts, sgd(PLANE, 0.1, 3, control=control), control.closing(averaging()), weighting
        )
        algorithm = fl.scaffold(lr=0.1, steps=3, control_weights="samples", weighting=weighting)
        result = run(PLANE, algorithm, START, cohorts, backend)
        assert_same(result, expected, 1e-9)
        np.testing.assert_allclose(flat(result.server_state["control"]), control.c, atol=1e-9)


@both_cohorts
@pytest.mark.parametrize("corrected", [False, True])
def test_fedadams_first_v(cohorts: list[list[int]], corrected: bool) -> None:
    b2, eps = (0.999, 1e-8) if corrected else (0.99, 1e-3)
    server = Adaptive(GROWTH["adam"], 0.9, b2, eps, first=0.25, corrected=corrected).server(0.1)
    expected = federate(PLANE, START, cohorts, sgd(PLANE, 0.1, 3), server)
    algorithm = fl.fedadam(lr=0.1, steps=3, initial_v=0.25, bias_correction=corrected)
    assert_same(run(PLANE, algorithm, START, cohorts), expected, 1e-9)


def length(vector: np.ndarray, order: object) -> float:
    return float(np.linalg.norm(vector, {1: 1, 2: 2, "max": np.inf}[order]))


@both_backends
@both_cohorts
@pytest.mark.parametrize(("scope", "order"), [("tensor", 2), ("tensor", 1), ("all", "max"), ("all", 1), ("layer", 2)])
def test_fednars_other_norms(cohorts: list[list[int]], scope: str, order: object, backend: str) -> None:
    """Parts of (W, b): both together, which are one module too, or each tensor by itself."""
    parts = [slice(0, 6), slice(6, 9)] if scope == "tensor" else [slice(0, 9)]
    limit = {1: 2.0, 2: 0.7, "max": 0.3}[order] * (0.5 if scope == "tensor" else 1.0)
    clipped, free = [], []

    def shape(t, g, y):
        d = g + 0.3 * y
        for part in parts:
            size = length(d[part], order)
            (clipped if size > limit else free).append(size)
            d[part] = d[part] * min(1.0, limit / size)
        return d

    start = np.linspace(-1, 1, 9)
    expected = federate(SOFTMAX, start, cohorts, sgd(SOFTMAX, 0.3, 3, shape=shape))
    assert clipped
    assert free
    algorithm = fl.fednar(fl.fedavg(lr=0.3, steps=3), weight_decay=0.3, max_norm=limit, scope=scope, order=order)
    result = run(SOFTMAX, algorithm, start, cohorts, backend)
    assert_same(result, expected, 1e-9)
    assert sum(report.measurements["clipped_steps"] for report in result.history) == len(clipped)


def test_layers_are_modules() -> None:
    """Two modules are two norms: one whose gradient is large does not shorten the other's."""
    plain, clipped = (
        run_network(a, [[0, 1, 2, 3]]).params
        for a in (
            fl.fedavg(lr=0.3, steps=1),
            fl.fednar(fl.fedavg(lr=0.3, steps=1), weight_decay=0.0, max_norm=0.2, scope="layer"),
        )
    )
    rows = dict(enumerate(CLIENTS))
    gradients = [reference.gradient(NETWORK, rows[i]) for i in rows]
    sizes = {
        part: [np.sqrt(sum((g[n] ** 2).sum() for n in g if n.startswith(part))) for g in gradients]
        for part in ("body", "head")
    }
    assert any(size > 0.2 for each in sizes.values() for size in each)
    for name in plain:
        part = name.split(".")[0]
        factors = [min(1.0, 0.2 / size) for size in sizes[part]]
        expected = NETWORK[name] - 0.3 * sum(f * g[name] for f, g in zip(factors, gradients, strict=True)) / 4
        np.testing.assert_allclose(clipped[name].numpy(), expected, atol=1e-12)


@both_backends
@both_cohorts
def test_decay_that_is_bounded_by_itself(cohorts: list[list[int]], backend: str) -> None:
    """s g + mu min(1, c / ||x||) x with s = min(1, A / ||g||)."""

    def shape(t, g, y):
        bounded = 0.4 * min(1.0, 0.8 / length(y, 2)) * y
        return g * min(1.0, 2.0 / length(g, 2)) + bounded

    expected = federate(PLANE, START, cohorts, sgd(PLANE, 0.1, 3, shape=shape))
    backbone = fl.fedavg(lr=0.1, steps=3)
    rate, _ = gradient_clipped(0.0, 2.0)
    same = (
        fl.clip_then_decay(backbone, weight_decay=0.4, max_norm=2.0, weight_norm=0.8),
        fl.adaptive_decay(backbone, rate=rate, decay=bounded_decay(0.4, 0.8)),
    )
    for algorithm in same:
        assert_same(run(PLANE, algorithm, START, cohorts, backend), expected, 1e-9)


@both_backends
@both_cohorts
def test_algorithm_two_with_functions_of_ones_own(cohorts: list[list[int]], backend: str) -> None:
    """x <- (1 - mu_t(g, x)) x - lambda_t(g, x) g with lr = 1; one factor for each tensor."""

    def rate(gradient, weights, now):
        here = per_round(0.1, 0.9)(now)
        return {n: here / (1 + g.norm()) for n, g in gradient.items()}

    def decay(gradient, weights, now):
        return 0.05 / (1 + weights["weight"].norm())

    def shape(t, g, y):
        by = np.r_[np.full(2, 1 / (1 + length(g[:2], 2))), 1 / (1 + length(g[2:], 2))]
        return 0.1 * 0.9**t * by * g + 0.05 / (1 + length(y[:2], 2)) * y

    expected = federate(PLANE, START, cohorts, sgd(PLANE, 1.0, 3, shape=shape))
    algorithm = fl.adaptive_decay(fl.fedavg(lr=1.0, steps=3), rate=rate, decay=decay)
    assert_same(run(PLANE, algorithm, START, cohorts, backend), expected, 1e-9)


def test_fednar_is_algorithm_two_with_equations_three_and_four() -> None:
    backbone = fl.scaffold(lr=0.1, steps=3)
    rate, decay = clipped_together(0.3, 2.0)
    pair = (
        fl.fednar(backbone, weight_decay=0.3, max_norm=2.0),
        fl.adaptive_decay(backbone, rate=rate, decay=decay),
    )
    one, other = (run(PLANE, a, START, COHORTS["some"]) for a in pair)
    assert_same(other, np.array([flat(report.params) for report in one.history]), 1e-12)


@both_backends
@both_cohorts
def test_server_side_decay(cohorts: list[list[int]], backend: str) -> None:
    """x <- x + eta D - u_t x_old."""

    def server(t, x, deltas, weights):
        return averaging(0.9)(t, x, deltas, weights) - 0.1 * 0.8**t * x

    expected = federate(PLANE, START, cohorts, sgd(PLANE, 0.1, 3), server)
    algorithm = fl.server_decay(fl.fedavg(lr=0.1, steps=3, server_lr=0.9), decay=per_round(0.1, 0.8))
    assert_same(run(PLANE, algorithm, START, cohorts, backend), expected, 1e-9)


def half_rate(gradient, weights, now):
    return 0.5


def small_decay(gradient, weights, now):
    return 0.05 / (1 + weights["weight"].norm())


IN_PROCESSES = {
    "control by samples": fl.scaffold(lr=0.1, steps=3, control_weights="samples"),
    "first v": fl.fedadam(lr=0.1, steps=3, initial_v=0.25),
    "norm of each tensor": fl.fednar(fl.fedavg(lr=0.1, steps=3), weight_decay=0.3, max_norm=0.7, scope="tensor"),
    "bounded decay": fl.clip_then_decay(fl.fedavg(lr=0.1, steps=3), weight_decay=0.4, max_norm=2.0, weight_norm=0.8),
    "own functions": fl.adaptive_decay(fl.fedavg(lr=0.1, steps=3), rate=half_rate, decay=small_decay),
    "server decay": fl.server_decay(fl.fedavg(lr=0.1, steps=3), decay=per_round(0.1, 0.8)),
}


@pytest.mark.parametrize(
    "name", slow_but(["control by samples", "own functions"], IN_PROCESSES, "two processes do what one does")
)
def test_in_processes_as_well(name: str) -> None:
    """The numbers of one process, which the tests of this file hold against numpy."""
    one = run(PLANE, IN_PROCESSES[name], START, COHORTS["some"])
    two = run(PLANE, IN_PROCESSES[name], START, COHORTS["some"], workers=2, block=2)
    assert_same(two, np.array([flat(report.params) for report in one.history]), 1e-12)


def test_pfedmes_absent_clients_train_for_themselves() -> None:
    """theta_i of everybody comes from this round's x; only the cohort's w_i are averaged."""
    local = {"lr": 0.1, "personal_lr": 0.2, "lam": 1.5, "inner_steps": 3, "local_rounds": 2}
    x, theta = dict(NETWORK), {}
    for cohort in PARTIAL:
        both = [reference_models.pfedme_client(x, rows, **local, warm_start=True, l2=0.0) for rows in CLIENTS]
        theta = {i: own for i, (_, own) in enumerate(both)}
        x = reference.weighted([both[i][0] for i in cohort], [1] * len(cohort))
    for settings in ({"backend": "serial"}, {"backend": "vectorised"}, {"workers": 2, "block": 1}):
        result = run_network(fl.pfedme(**local, train_absent=True), PARTIAL, **settings)
        assert_close(result.params, x, 1e-9)
        assert_personal(result, theta, 1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_client_that_dropped_out_does_not_train_as_an_absent_one(backend: str) -> None:
    """It keeps what it had, like one whose upload is refused; who was not asked trains from this round's x."""
    local = {"lr": 0.1, "personal_lr": 0.2, "lam": 1.5, "inner_steps": 3, "local_rounds": 2}
    algorithm, cohorts = fl.pfedme(**local, train_absent=True), [[0, 1, 2]] * 4
    result = run_network(algorithm, cohorts, backend=backend, faults=ft.Faults(drop=0.5))
    x, theta, dropped = dict(NETWORK), {}, []
    for report in result.history:
        failed = {failure.client for failure in report.failures}
        assert {failure.reason for failure in report.failures} <= {"dropped out"}
        both = {
            i: reference_models.pfedme_client(x, rows, **local, warm_start=True, l2=0.0)
            for i, rows in enumerate(CLIENTS)
            if i not in failed
        }
        theta |= {i: own for i, (_, own) in both.items()}
        there = [i for i in (0, 1, 2) if i not in failed]
        x = reference.weighted([both[i][0] for i in there], [1] * len(there)) if there else x
        dropped.append(failed)
    assert dropped[-1], "somebody dropped out of the last round"
    assert_close(result.params, x, 1e-9)
    assert_personal(result, theta, 1e-9)


ABSENT = {
    "pfedme": fl.pfedme(lr=0.1, personal_lr=0.2, lam=1.5, inner_steps=3, local_rounds=2, train_absent=True),
    "fedala": fl.fedala(lr=0.1, steps=3, mix_lr=2.0, threshold=0.01, most_passes=20, mix_absent=True),
}


def hits_the_absent(seed: int, faults: ft.Faults) -> bool:
    """Whether nobody is struck in the first round, and in the second the fourth client and not all of the others."""
    first, (*others, last) = (faults.assigned(seed, number, np.arange(4)) for number in (0, 1))
    return not any(first) and last is not None and any(others) and not all(others)


STRUCK = ("nan", "huge", "renamed")


@pytest.mark.parametrize("kind", STRUCK)
@pytest.mark.parametrize("name", ABSENT)
@both_backends
def test_what_hits_uploads_leaves_absent_clients_alone(backend: str, name: str, kind: str) -> None:
    """They send nothing. So a fault of an upload, and a rule for uploads, changes nothing of what they keep."""
    check_absent(backend, name, kind)


@pytest.mark.parametrize(
    "kind", slow_but(["renamed"], STRUCK, "workers strike as one process does; every kind runs there")
)
@pytest.mark.parametrize("name", ABSENT)
def test_so_it_is_in_processes(name: str, kind: str) -> None:
    check_absent("processes", name, kind)


def check_absent(backend: str, name: str, kind: str) -> None:
    faults, cohorts = ft.Faults(**{kind: 0.4}), [[0, 1, 2, 3], [0, 1, 2]]
    seed = next(seed for seed in range(999) if hits_the_absent(seed, faults))
    settings = (
        {"seed": seed, "workers": 2, "block": 1} if backend == "processes" else {"seed": seed, "backend": backend}
    )
    sound = run_network(ABSENT[name], cohorts, **settings)
    hit = run_network(ABSENT[name], cohorts, **settings, faults=faults, admission=ft.Admission(max_norm=1e3))
    assert hit.history[1].failures and not hit.history[1].abandoned
    assert_same_bits(hit.client_state(3, "last"), sound.client_state(3, "last"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_absent_client_remembers_no_error_of_an_upload(backend: str) -> None:
    """Nothing of it was left out of a message: it sent none."""
    algorithm = replace(ABSENT["pfedme"], uploads=replace(ABSENT["pfedme"].uploads, compress=ft.compress.top_k(0.2)))
    result = run_network(algorithm, [[0, 1, 2]], backend=backend)
    asked, absent = (error_memory_in(result.client_state(client, "last")) for client in (0, 3))
    assert any(bool(error.any()) for error in asked.values())
    assert absent and not any(bool(error.any()) for error in absent.values())


@both_backends
@both_cohorts
def test_fedbabu_with_an_orthogonal_head(cohorts: list[list[int]], backend: str) -> None:
    left, _, right = np.linalg.svd(COMMON_HEAD["head.weight"], full_matrices=False)
    head = {**COMMON_HEAD, "head.weight": left @ right}
    theta = reference.fedbabu(CLIENTS, THETA, head, cohorts, lr=0.3, steps=3)
    result = run_network(fl.fedbabu(lr=0.3, steps=3, orthogonal=True), cohorts, backend=backend)
    assert_close(result.params, {**theta, **head}, 1e-9)
    weight = result.params["head.weight"]
    torch.testing.assert_close(weight.T @ weight, torch.eye(2, dtype=torch.float64))


@pytest.mark.parametrize("backend", BACKENDS)
def test_fedbns_averaged_newcomer(backend: str) -> None:
    """Clients train as in FedBN. The server has the mean of their BatchNorm weights, a newcomer its own statistics."""
    settings = {"model": NormNet(), "start": first_norm_state(), "backend": backend}
    fresh, averaged = (
        run_network(fl.fedbn(lr=0.3, steps=2, newcomer=n), PARTIAL, **settings) for n in ("fresh", "averaged")
    )
    others = [n for n in averaged.params if n not in NORM]
    assert all(torch.equal(fresh.params[n], averaged.params[n]) for n in others)
    states = [averaged.client_state(i) for i in range(4)]
    for client, own in enumerate(states):
        assert_close(own, {n: t.numpy() for n, t in fresh.client_state(client).items()}, 0.0)
    last = averaged.client_state(PARTIAL[-1][0])
    for name in NORM[:2]:
        torch.testing.assert_close(averaged.params[name], last[name], rtol=0, atol=1e-12)
    served = averaged.personalize(NEWCOMER, steps=0)
    linear = {n: averaged.params[n].numpy() for n in BODY}
    inside = NEWCOMER[0] @ linear["body.0.weight"].T + linear["body.0.bias"]
    np.testing.assert_allclose(served.personal["body.1.running_mean"], inside.mean(0), atol=1e-12)
    np.testing.assert_allclose(served.personal["body.1.running_var"], inside.var(0, ddof=1), atol=1e-12)
    assert_close({n: served.personal[n] for n in NORM[:2]}, {n: averaged.params[n].numpy() for n in NORM[:2]}, 0.0)


def test_batches_in_the_order_of_the_rows() -> None:
    """Rows 0 and 1, then 2 and 3, then 4; from the start again in the next epoch, in every round."""
    theta = dict(NETWORK)
    x, y = CLIENTS[2]
    for _ in range(2):
        for start in (0, 2, 4, 0):
            theta = reference.steps_on(tuple(theta), theta, (x[start : start + 2], y[start : start + 2]), 0.3, 1)
    for backend in BACKENDS:
        result = run_network(fl.fedavg(lr=0.3, steps=4), [[2]] * 2, backend=backend, batch_size=2, batches="in_order")
        assert_close(result.params, theta, 1e-12)
    mixed = [
        run_network(fl.fedavg(lr=0.3, epochs=2), PARTIAL, backend=b, batch_size=2, batches="in_order") for b in BACKENDS
    ]
    assert_close(mixed[0].params, {n: t.numpy() for n, t in mixed[1].params.items()}, 1e-12)


def test_what_is_refused() -> None:
    with pytest.raises(ft.ConfigError, match="initial_v must be a number >= 0, left out with fednar_compat"):
        fl.fedadam(lr=0.1, steps=1, initial_v=0.1, fednar_compat=True)
    with pytest.raises(ft.ConfigError, match="order must be 1 or 2 or 'max'"):
        fl.fednar(fl.fedsgd(lr=0.1), weight_decay=0.1, max_norm=1.0, order=3)
    with pytest.raises(ft.ConfigError, match="rate must be a function of"):
        fl.adaptive_decay(fl.fedsgd(lr=0.1), rate=0.5, decay=0.5)
