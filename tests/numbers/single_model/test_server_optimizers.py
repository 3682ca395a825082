"""FedAvgM, FedAdam (three variants), FedYogi, FedAdagrad and FedExP: what the server does with D = sum w_i D_i.

Hand-worked cases: A and B of `problem.py` from (0, 0), l = 1/8, K = 1: D_A = (1/4, 1/4), D_B = (0, -1/8). With A alone
D = (1/4, 1/4) in the first round.
"""

import numpy as np
import pytest

from fedtempo import algorithms as fl
from fedtempo.client import transforms
from fedtempo.schedules import per_round
from tests.numbers.single_model.problem import (
    EIGHTH,
    HAND,
    PLANE,
    SOFTMAX,
    START,
    ZERO,
    A,
    B,
    assert_same,
    flat,
    run,
    trace,
)
from tests.numbers.single_model.reference import GROWTH, Adaptive, Extrapolation, federate, fednar_adam, momentum, sgd

ONCE = {"lr": EIGHTH, "steps": 1}


def test_fedavgm_by_hand(backend):
    """u <- u / 2 + D, x <- x + u, client A alone, residual r = w + b - 1, D = -r/4 (1, 1).

    Round 0: r = -1, u = (1/4, 1/4) = x. Round 1: r = -1/2, D = 1/8, u = 1/8 + 1/8 = 1/4, x = (1/2, 1/2).
    Round 2: r = 0, D = 0, u = 1/8: it overshoots to (5/8, 5/8).
    """
    result = run(HAND, fl.fedavgm(**ONCE, momentum=0.5), ZERO, [[A]] * 3, backend)
    assert_same(result, np.array([(1 / 4, 1 / 4), (1 / 2, 1 / 2), (5 / 8, 5 / 8)]), 0)


def test_fedadam_by_hand(backend):
    """Reddi: b1 = b2 = 1/2, eps = 7/4, v_{-1} = eps^2 = 49/16, eta = 1, A alone.

    m = 1/8, v = (49/16 + 1/16) / 2 = 25/16, x = (1/8) / (5/4 + 7/4) = 1/24.
    """
    result = run(HAND, fl.fedadam(**ONCE, server_lr=1.0, b1=0.5, b2=0.5, eps=1.75), ZERO, [[A]], backend)
    assert_same(result, np.array([(1 / 24, 1 / 24)]))


def test_bias_corrected_fedadam_by_hand(backend):
    """Algorithm 3 of the decaying-K paper: b1 = 0, b2 = 3/4, eps = 1/8, v from 0, eta = 1, A alone.

    m = 1/4, v = (1/4)(1/16) = 1/64, factor sqrt(1 - b2) / (1 - b1) = 1/2, x = (1/2)(1/4) / (1/8 + 1/8) = 1/2. With
    moments corrected first, as in torch, it would be (1/4) / (1/4 + 1/8) = 2/3.
    """
    algorithm = fl.fedadam(**ONCE, server_lr=1.0, b1=0.0, b2=0.75, eps=1 / 8, bias_correction=True)
    assert_same(run(HAND, algorithm, ZERO, [[A]], backend), np.array([(1 / 2, 1 / 2)]))


def test_fednar_compatible_fedadam_by_hand(backend):
    """m = .1 / 4 = 1/40, v = .01 m^2, so (m / .1) / sqrt(v / .01 + eps) = (1/4) / sqrt(1/1600 + eps).

    eps = 3/1600 makes the root 1/20 and the step 5; eta = 1/10: x = 1/2.
    """
    algorithm = fl.fedadam(**ONCE, server_lr=0.1, eps=3 / 1600, fednar_compat=True)
    assert_same(run(HAND, algorithm, ZERO, [[A]], backend), np.array([(1 / 2, 1 / 2)]))


def test_fedyogi_by_hand(backend):
    """b1 = b2 = 1/2, eps = 1/16, D^2 = 1/16 > v = 1/256: v grows to 1/256 + 1/32 = 9/256.

    m = 1/8, x = (1/8) / (3/16 + 1/16) = 1/2. With eps = 1/4, v = D^2: sign 0, v stays, x = (1/8) / (1/2) = 1/4.
    """
    for eps, expected in ((1 / 16, 1 / 2), (1 / 4, 1 / 4)):
        algorithm = fl.fedyogi(**ONCE, server_lr=1.0, b1=0.5, b2=0.5, eps=eps)
        assert_same(run(HAND, algorithm, ZERO, [[A]], backend), np.array([(expected, expected)]))


def test_fedadagrad_by_hand(backend):
    """No momentum, eps = 3/16: v = 9/256 + 16/256 = (5/16)^2, x = (1/4) / (5/16 + 3/16) = 1/2."""
    result = run(HAND, fl.fedadagrad(**ONCE, server_lr=1.0, eps=3 / 16), ZERO, [[A]], backend)
    assert_same(result, np.array([(1 / 2, 1 / 2)]))


@pytest.mark.parametrize(
    "settings, eta", [({}, 9 / 5), ({"eps": 1 / 256}, 3 / 2), ({"eps": 1 / 256, "eps_per_client": True}, 9 / 7)]
)
def test_fedexp_by_hand(backend, settings, eta):
    """D = (1/8, 1/16), ||D||^2 = 5/256; mean ||D_i||^2 = (1/8 + 1/64) / 2 = 9/128.

    eta = (9/128) / (10/256) = 9/5; with eps = 1/256: (9/128) / (12/256) = 3/2; with 2 eps: (9/128) / (14/256) = 9/7.
    Served: the mean of x_0 = 0 and x_1.
    """
    result = run(HAND, fl.fedexp(**ONCE, **settings), ZERO, [[A, B]], backend)
    assert_same(result, eta * np.array([(1 / 8, 1 / 16)]))
    np.testing.assert_allclose(flat(result.model_params), eta * np.array([1 / 16, 1 / 32]), rtol=1e-12)


def adaptive(kind, **settings):
    """A function that makes a server with fresh moments."""
    return lambda eta: Adaptive(GROWTH[kind], **settings).server(eta)


ETA = (per_round(0.2, 0.9), lambda t: 0.2 * 0.9**t)
CASES = {
    "fedavgm": (fl.fedavgm, {"momentum": 0.6}, lambda eta: momentum(0.6, eta)),
    "fedavgm default": (fl.fedavgm, {}, lambda eta: momentum(0.9, eta)),
    "fedadam": (fl.fedadam, {}, adaptive("adam", b1=0.9, b2=0.99, eps=1e-3)),
    "fedadam set": (
        fl.fedadam,
        {"b1": 0.8, "b2": 0.95, "eps": 0.05},
        adaptive("adam", b1=0.8, b2=0.95, eps=0.05),
    ),
    "fedadam corrected": (
        fl.fedadam,
        {"bias_correction": True},
        adaptive("adam", b1=0.9, b2=0.999, eps=1e-8, first=0.0, corrected=True),
    ),
    "fedyogi": (fl.fedyogi, {}, adaptive("yogi", b1=0.9, b2=0.99, eps=1e-3)),
    "fedyogi large eps": (fl.fedyogi, {"eps": 0.2}, adaptive("yogi", b1=0.9, b2=0.99, eps=0.2)),
    "fedadagrad": (fl.fedadagrad, {}, adaptive("adagrad", b1=0.0, b2=0.0, eps=1e-3)),
    "fedadagrad set": (
        fl.fedadagrad,
        {"b1": 0.7, "eps": 0.1},
        adaptive("adagrad", b1=0.7, b2=0.0, eps=0.1),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_server_optimizers(backend, cohorts, name, weighting):
    """Five rounds (three with everybody), defaults and other constants, eta_t = .2 * .9^t, state carried over."""
    build, settings, server = CASES[name]
    expected = federate(PLANE, START, cohorts, sgd(PLANE, 0.1, 3), server(ETA[1]), weighting)
    algorithm = build(lr=0.1, steps=3, server_lr=ETA[0], weighting=weighting, **settings)
    assert_same(run(PLANE, algorithm, START, cohorts, backend), expected)


@pytest.mark.parametrize("eps, reference", [(0.02, 0.02), (per_round(0.02, 0.81), lambda t: 0.02 * 0.81**t)])
def test_fednar_compatible_fedadam(backend, cohorts, eps, reference):
    """v from the squared momentum, eps inside the root and, in the FedNAR code, times decay^2 every round."""
    expected = federate(PLANE, START, cohorts, sgd(PLANE, 0.1, 3), fednar_adam(0.1, reference), "samples")
    algorithm = fl.fedadam(lr=0.1, steps=3, server_lr=0.1, eps=eps, fednar_compat=True, weighting="samples")
    assert_same(run(PLANE, algorithm, START, cohorts, backend), expected)


def test_fedadam_on_softmax_regression(backend, cohorts):
    """The same numbers on cross entropy."""
    start = np.linspace(-1, 1, 9)
    expected = federate(SOFTMAX, start, cohorts, sgd(SOFTMAX, 0.5, 3), CASES["fedadam"][2](0.1))
    assert_same(run(SOFTMAX, fl.fedadam(lr=0.5, steps=3), start, cohorts, backend), expected)


EPS = {"none": (0.0, 0.0), "constant": (0.002, 0.002), "annealed": (per_round(0.004, 0.81), lambda t: 0.004 * 0.81**t)}


@pytest.mark.parametrize("eps", EPS)
@pytest.mark.parametrize("per_client", [False, True])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_fedexp(backend, cohorts, eps, per_client, weighting):
    """eta_g >= 1 every round, larger than 1 in some; the served model is the mean of the last two."""
    library, reference = EPS[eps]
    server = Extrapolation(reference, per_client)
    expected = federate(PLANE, START, cohorts, sgd(PLANE, 0.1, 3), server, weighting)
    assert max(server.rates) > 1
    algorithm = fl.fedexp(lr=0.1, steps=3, eps=library, eps_per_client=per_client, weighting=weighting)
    result = run(PLANE, algorithm, START, cohorts, backend)
    assert_same(result, expected)
    np.testing.assert_allclose(flat(result.model_params), (expected[-2] + expected[-1]) / 2, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(flat(result.params), trace(result)[-1])


def test_fedexp_served_model_without_the_average(backend):
    """`average_last_two=False` serves the last model (the code's --no_model_avg)."""
    result = run(PLANE, fl.fedexp(lr=0.1, steps=3, average_last_two=False), START, [[0, 1, 2, 3]] * 2, backend)
    np.testing.assert_array_equal(flat(result.model_params), flat(result.params))


def test_fedexp_when_nothing_moves(backend):
    """0/0 counts as eta = 1: at A's own minimiser (1/2, 1/2) nothing moves and nothing is NaN."""
    result = run(HAND, fl.fedexp(**ONCE), np.array([0.5, 0.5]), [[A], [A]], backend)
    assert_same(result, np.full((2, 2), 0.5), 0)


@pytest.mark.parametrize("outer", ["momentum", "adam"])
def test_another_optimizer_steps_on_what_fedexp_extrapolated(backend, cohorts, outer):
    """eta_g D goes into the optimizer in place of D: norms and eta_g come before any server momentum."""
    inner = Extrapolation()
    extrapolated = lambda t, x, deltas, weights: inner(t, 0.0, deltas, weights)  # noqa: E731
    adam = Adaptive(GROWTH["adam"], 0.9, 0.99, 1e-3)
    velocity = 0.0

    def server(t, x, deltas, weights):
        nonlocal velocity
        move = extrapolated(t, x, deltas, weights)
        if outer == "adam":
            return x + 0.1 * adam.direction(move)
        velocity = 0.5 * velocity + move
        return x + 0.7 * velocity

    expected = federate(PLANE, START, cohorts, sgd(PLANE, 0.1, 3), server)
    assert max(inner.rates) > 1
    step = (transforms.momentum(0.5), 0.7) if outer == "momentum" else (transforms.scale_by_adam(), 0.1)
    result = run(PLANE, fl.with_server(fl.fedexp(lr=0.1, steps=3), *step), START, cohorts, backend)
    assert_same(result, expected, 1e-11)
    np.testing.assert_allclose(flat(result.model_params), (expected[-2] + expected[-1]) / 2, rtol=1e-11)
    assert result.history[-1].measurements["server_lr"] == pytest.approx(inner.rates[-1], rel=1e-9)


def test_fedhyper_reads_the_displacement_that_is_not_extrapolated(backend):
    """FedHyper-SL's D is the mean displacement, also where another optimizer follows FedExP."""
    plain = fl.fedhyper_server(fl.fedexp(lr=0.1, steps=3), step=0.5)
    other = fl.fedhyper_server(fl.with_server(fl.fedexp(lr=0.1, steps=3), transforms.scale(1.0)), step=0.5)
    one, two = (run(PLANE, each, START, [[0, 1, 2, 3]] * 4, backend) for each in (plain, other))
    assert one.history[-1].measurements["client_lr"] != pytest.approx(0.1)
    assert_same(two, trace(one))
