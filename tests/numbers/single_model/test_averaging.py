"""FedSGD, FedAvg, Reptile, FOMAML and FedProx: SGD at the clients, a mean at the server.

The hand-worked cases use A and B of `problem.py` from (w, b) = (0, 0) with l = 1/8:
    A, two steps: residual -1, -1/2, -1/4;    y = (1/4, 1/4), (3/8, 3/8);       gradients (-2, -2), (-1, -1).
    B, two steps: residual 1/2, 3/8, 9/32;    y = (0, -1/8), (0, -7/32);        gradients (0, 1), (0, 3/4).
"""

import numpy as np
import pytest

from fedtempo import algorithms as fl
from fedtempo.schedules import inverse_time, per_round, per_step, piecewise, sequence
from tests.numbers.single_model.problem import EIGHTH, HAND, PLANE, SOFTMAX, START, ZERO, A, B, assert_same, run, trace
from tests.numbers.single_model.reference import averaging, descend, federate, last_gradient, last_update, sgd

BOTH = [[A, B]]


@pytest.mark.parametrize("weighting, expected", [("uniform", (1 / 8, 1 / 16)), ("samples", (1 / 16, -1 / 32))])
def test_fedsgd_by_hand(backend, weighting, expected):
    """x - l sum w_i g_i, g_A = (-2, -2), g_B = (0, 1).

    Uniform: mean (-1, -1/2), x = (1/8, 1/16). Samples 1/4 and 3/4: mean (-1/2, -1/2 + 3/4), x = (1/16, -1/32).
    """
    assert_same(run(HAND, fl.fedsgd(lr=EIGHTH, weighting=weighting), ZERO, BOTH, backend), np.array([expected]), 0)


@pytest.mark.parametrize("weighting, expected", [("uniform", (3 / 16, 5 / 64)), ("samples", (3 / 32, -9 / 128))])
def test_fedavg_by_hand(backend, weighting, expected):
    """K = 2: D_A = (3/8, 3/8), D_B = (0, -7/32).

    Uniform: (3/16, (12/32 - 7/32) / 2) = (3/16, 5/64). Samples: (3/32, 3/32 - 21/128) = (3/32, -9/128).
    """
    assert_same(
        run(HAND, fl.fedavg(lr=EIGHTH, steps=2, weighting=weighting), ZERO, BOTH, backend), np.array([expected]), 0
    )


def test_weights_by_samples_processed_by_hand(backend):
    """K = 2 batches of 2: A sees its one row twice, B batches of 2 and 1, so weights 2/5 and 3/5.

    D_A = (3/8, 3/8), D_B = (0, -7/32): x = (3/20, 3/20 - 21/160) = (3/20, 3/160).
    """
    algorithm = fl.fedavg(lr=EIGHTH, steps=2, weighting="processed")
    assert_same(run(HAND, algorithm, ZERO, BOTH, backend, batch_size=2), np.array([(3 / 20, 3 / 160)]))


def test_reptile_by_hand(backend):
    """x + eps mean D_i with eps = 1/2: half of FedAvg's (3/16, 5/64), uniform although B has three times the rows."""
    algorithm = fl.reptile(lr=EIGHTH, steps=2, server_lr=0.5)
    assert_same(run(HAND, algorithm, ZERO, BOTH, backend), np.array([(3 / 32, 5 / 128)]), 0)


@pytest.mark.parametrize("outer, expected", [(None, (1 / 16, 1 / 64)), (1.0, (1 / 2, 1 / 8))])
def test_fomaml_by_hand(backend, outer, expected):
    """x - eta_out mean g^(K-1), K = 2: last gradients (-1, -1) and (0, 3/4), mean (-1/2, -1/8).

    eta_out = l = 1/8 (eqs. 4 and 6): (1/16, 1/64). eta_out = 1: (1/2, 1/8).
    """
    assert_same(run(HAND, fl.fomaml(lr=EIGHTH, steps=2, server_lr=outer), ZERO, BOTH, backend), np.array([expected]), 0)


def test_fedprox_by_hand(backend):
    """g = grad f_i(y) + mu (y - x), mu = 2, K = 2. The first step is FedAvg's, since y = x.

    A at (1/4, 1/4): (-1, -1) + (1/2, 1/2) = (-1/2, -1/2), y = (5/16, 5/16).
    B at (0, -1/8): 3/4 - 1/4 = 1/2, b = -1/8 - 1/16 = -3/16. Mean (5/32, 1/16).
    """
    assert_same(run(HAND, fl.fedprox(lr=EIGHTH, steps=2, mu=2.0), ZERO, BOTH, backend), np.array([(5 / 32, 1 / 16)]), 0)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_fedsgd(backend, cohorts, weighting):
    """x <- x - eta_g l sum_S w_i grad f_i(x): written here as gradient descent, without clients."""
    x, expected = START, []
    for cohort in cohorts:
        sizes = np.array([PLANE.sizes[i] if weighting == "samples" else 1 for i in cohort])
        x = x - 0.5 * 0.2 * sum(n * PLANE.gradient(i, x) for n, i in zip(sizes, cohort, strict=True)) / sizes.sum()
        expected.append(x)
    for full in (False, True):
        algorithm = fl.fedsgd(lr=0.2, server_lr=0.5, weighting=weighting, full_batch=full)
        assert_same(run(PLANE, algorithm, START, cohorts, backend), np.array(expected))


def test_fedsgd_full_batch_ignores_the_batch_size(backend, cohorts):
    """McMahan's FedSGD takes the gradient on all local rows, whatever the experiment's batch size is."""
    result = run(PLANE, fl.fedsgd(lr=0.2, full_batch=True), START, cohorts, backend, batch_size=1)
    assert_same(result, federate(PLANE, START, cohorts, sgd(PLANE, 0.2, 1)))


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize(
    "problem, start", [(PLANE, START), (SOFTMAX, np.linspace(-1, 1, 9))], ids=["regression", "softmax"]
)
def test_fedavg(backend, cohorts, weighting, problem, start):
    """y <- y - l grad f_i(y), K = 3; x <- x + eta_g sum w_i D_i; on squares and on cross entropy."""
    algorithm = fl.fedavg(lr=0.1, steps=3, server_lr=1.5, weighting=weighting)
    expected = federate(problem, start, cohorts, sgd(problem, 0.1, 3), averaging(1.5), weighting)
    assert_same(run(problem, algorithm, start, cohorts, backend), expected)


RATES = {
    "gamma_0 d^t": (per_round(0.1, 0.7), lambda t, k: 0.1 * 0.7**t),
    "c / (t + d)": (inverse_time(0.4, 3.0), lambda t, k: 0.4 / (t + 3.0)),
    "drops": (piecewise(0.1, {1: 0.5, 3: 0.2}), lambda t, k: 0.1 * (1, 0.5, 0.5, 0.1, 0.1)[t]),
    "list over rounds": (sequence([0.1, 0.05, 0.2], over="round"), lambda t, k: (0.1, 0.05, 0.2, 0.2, 0.2)[t]),
    "product": (per_round(0.1, 0.7) * per_step(2.0, 0.5), lambda t, k: 0.1 * 0.7**t * 2 * 0.5**k),
    "function": (lambda now: 0.1 / (1 + now.round + now.step), lambda t, k: 0.1 / (1 + t + k)),
}


@pytest.mark.parametrize("name", RATES)
def test_client_rate_schedules(backend, cohorts, name):
    """l_t (and l_{t,k}) with t and k from 0; K = 3."""
    library, reference = RATES[name]
    expected = federate(PLANE, START, cohorts, sgd(PLANE, reference, 3))
    assert_same(run(PLANE, fl.fedavg(lr=library, steps=3), START, cohorts, backend), expected)


def test_server_rate_schedule(backend, cohorts):
    """Decaying-eta: x <- x + eta_t D, eta_t = eta_0 d^t, samples weights (decaying-K paper, Algorithm 1)."""
    algorithm = fl.fedavg(lr=0.1, steps=3, server_lr=per_round(1.2, 0.6), weighting="samples")
    expected = federate(PLANE, START, cohorts, sgd(PLANE, 0.1, 3), averaging(lambda t: 1.2 * 0.6**t), "samples")
    assert_same(run(PLANE, algorithm, START, cohorts, backend), expected)


def test_client_momentum_starts_afresh_each_round(backend, cohorts):
    """u <- m u + g, y <- y - l u (torch's SGD), u = 0 at the start of every round: clients keep no state."""

    def client(t, i, x):
        y, u = x, 0.0
        for _ in range(3):
            u = 0.5 * u + PLANE.gradient(i, y)
            y = y - 0.1 * u
        return y - x

    algorithm = fl.fedavg(lr=0.1, steps=3, momentum=0.5)
    assert_same(run(PLANE, algorithm, START, cohorts, backend), federate(PLANE, START, cohorts, client))


def test_reptile(backend, cohorts):
    """x <- x + eps_t mean D_i, eps_t = .8 * .9^t, always uniform."""
    algorithm = fl.reptile(lr=0.1, steps=3, server_lr=per_round(0.8, 0.9))
    expected = federate(PLANE, START, cohorts, sgd(PLANE, 0.1, 3), averaging(lambda t: 0.8 * 0.9**t))
    assert_same(run(PLANE, algorithm, START, cohorts, backend), expected)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_fomaml(backend, cohorts, weighting):
    """x <- x - eta_out sum w_i grad f_i(y_{K-1}), K = 4, with eta_out = l and with eta_out = .3; l_t = .1 .8^t."""
    lr, rate = per_round(0.1, 0.8), lambda t, k: 0.1 * 0.8**t
    inner = federate(PLANE, START, cohorts, sgd(PLANE, rate, 4, sends=last_update), None, weighting)
    assert_same(run(PLANE, fl.fomaml(lr=lr, steps=4, weighting=weighting), START, cohorts, backend), inner)
    outer = federate(PLANE, START, cohorts, sgd(PLANE, rate, 4, sends=last_gradient), averaging(0.3), weighting)
    assert_same(
        run(PLANE, fl.fomaml(lr=lr, steps=4, server_lr=0.3, weighting=weighting), START, cohorts, backend), outer
    )


def test_fomaml_after_a_step_of_rate_zero(backend, cohorts):
    """l_k = .1, 0, 0: y_2 = y_1, and under an outer rate the last gradient counts: x - .3 mean grad f_i(y_1)."""

    def client(t, i, x):
        return -PLANE.gradient(i, x - 0.1 * PLANE.gradient(i, x))

    algorithm = fl.fomaml(lr=per_step(0.1, 0.0), steps=3, server_lr=0.3)
    assert_same(run(PLANE, algorithm, START, cohorts, backend), federate(PLANE, START, cohorts, client, averaging(0.3)))


def test_fomaml_on_epochs(backend):
    """Two epochs of batches of 2 on equal rows: A takes 2 steps, B (3 rows) 4, and each sends its own last update."""

    def client(t, i, x):
        path = descend(x, lambda y: HAND.gradient(i, y), [EIGHTH] * (2, 4)[i])
        return path[-1] - path[-2]

    result = run(HAND, fl.fomaml(lr=EIGHTH, epochs=2), ZERO, BOTH * 3, backend, batch_size=2)
    assert_same(result, federate(HAND, ZERO, BOTH * 3, client))


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_fedprox(backend, cohorts, weighting):
    """g = grad f_i(y) + mu (y - x), x the model received this round; mu constant and mu_t = .5^t."""
    for mu, reference in ((0.7, 0.7), (per_round(1.0, 0.5), lambda t: 0.5**t)):
        algorithm = fl.fedprox(lr=0.1, steps=4, mu=mu, server_lr=0.9, weighting=weighting)
        expected = federate(PLANE, START, cohorts, sgd(PLANE, 0.1, 4, mu=reference), averaging(0.9), weighting)
        assert_same(run(PLANE, algorithm, START, cohorts, backend), expected)


def test_the_reported_loss_is_the_mean_over_local_steps(backend, cohorts):
    """loss_t = sum w_i (1/K) sum_k f_i(y_k), k < K: what decaying K by loss looks at."""
    result = run(PLANE, fl.fedavg(lr=0.1, steps=3), START, cohorts, backend)
    x = START
    for cohort, report, after in zip(cohorts, result.history, trace(result), strict=True):
        paths = [descend(x, lambda y, i=i: PLANE.gradient(i, y), [0.1] * 2) for i in cohort]
        losses = [np.mean([PLANE.loss(i, y) for y in path]) for i, path in zip(cohort, paths, strict=True)]
        assert abs(report.loss - np.mean(losses)) < 1e-12
        x = after
