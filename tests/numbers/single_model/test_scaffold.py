"""SCAFFOLD: g = grad f_i(y) - c_i + c; options II (the default) and I for c_i; c moves by 1/N of the changes.

Hand-worked cases: A and B of `problem.py` from (0, 0), l = 1/8, K = 2, where FedAvg gives y_A = (3/8, 3/8) and
y_B = (0, -7/32).
"""

import numpy as np
import pytest

from fedtempo import algorithms as fl
from fedtempo.schedules import decaying_k, per_round, per_step
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
    control_of,
    flat,
    run,
)
from tests.numbers.single_model.reference import Control, averaging, federate, sgd

BOTH = [[A, B]]


def controls(result, clients=2):
    """(c, [c_i]) of the library."""
    return flat(result.server_state["control"]), np.array([control_of(result, i) for i in range(clients)])


def test_option_two_by_hand(backend):
    """Round 0 from zero controls: x = FedAvg's (3/16, 5/64); c_i+ = (x - y_i) / (K l) = 4 (x - y_i).

    c_A = (-3/2, -3/2), c_B = (0, 7/8), c = their mean (-3/4, -5/16).
    """
    result = run(HAND, fl.scaffold(lr=EIGHTH, steps=2), ZERO, BOTH, backend)
    assert_same(result, np.array([(3 / 16, 5 / 64)]), 0)
    c, of = controls(result)
    np.testing.assert_array_equal(of, [(-3 / 2, -3 / 2), (0, 7 / 8)])
    np.testing.assert_array_equal(c, (-3 / 4, -5 / 16))


def test_second_round_by_hand(backend):
    """K = 1, so c_i after round 0 is grad f_i(0): c_A = (-2, -2), c_B = (0, 1), c = (-1, -1/2), x = (1/8, 1/16).

    Round 1, A: residual -13/16, grad (-13/8, -13/8), g = grad - c_A + c = (-5/8, -1/8), y_A - x = (5/64, 1/64).
    B: residual 9/16, grad (0, 9/8), g = (-1, -3/8), y_B - x = (1/8, 3/64). Mean (13/128, 1/32).
    x = (29/128, 3/32). c_i+ = c_i - c + g_i = grad f_i(x): (-13/8, -13/8) and (0, 9/8); c = (-13/16, -1/4).
    """
    result = run(HAND, fl.scaffold(lr=EIGHTH, steps=1), ZERO, BOTH * 2, backend)
    assert_same(result, np.array([(1 / 8, 1 / 16), (29 / 128, 3 / 32)]))
    c, of = controls(result)
    np.testing.assert_allclose(of, [(-13 / 8, -13 / 8), (0, 9 / 8)], rtol=0, atol=1e-12)
    np.testing.assert_allclose(c, (-13 / 16, -1 / 4), rtol=0, atol=1e-12)


def test_option_one_by_hand(backend):
    """c_i+ = grad f_i(x) at the model received: (-2, -2) and (0, 1); c = (-1, -1/2); the first model is FedAvg's."""
    result = run(HAND, fl.scaffold(lr=EIGHTH, steps=2, option="I"), ZERO, BOTH, backend)
    assert_same(result, np.array([(3 / 16, 5 / 64)]), 0)
    c, of = controls(result)
    np.testing.assert_array_equal(of, [(-2, -2), (0, 1)])
    np.testing.assert_array_equal(c, (-1, -1 / 2))


def test_the_server_divides_by_all_clients(backend):
    """Only A takes part: x moves by all of D_A = (3/8, 3/8), c by 1/N = 1/2 of c_A = (-3/2, -3/2)."""
    result = run(HAND, fl.scaffold(lr=EIGHTH, steps=2), ZERO, [[A]], backend)
    assert_same(result, np.array([(3 / 8, 3 / 8)]), 0)
    c, of = controls(result)
    np.testing.assert_array_equal(c, (-3 / 4, -3 / 4))
    np.testing.assert_array_equal(of[B], (0, 0))


@pytest.mark.parametrize("option", ["II", "I"])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize(
    "problem, start", [(PLANE, START), (SOFTMAX, np.linspace(-1, 1, 9))], ids=["regression", "softmax"]
)
def test_models_and_controls(backend, cohorts, option, weighting, problem, start):
    """Models, c and every c_i over several rounds; weights concern the model only, never c.

    l_t = .1 * .9^t: c_i+ divides by K l_t of its own round.
    """
    control = Control(problem, len(start), option)
    client = sgd(problem, lambda t, k: 0.1 * 0.9**t, 3, control=control)
    expected = federate(problem, start, cohorts, client, control.closing(averaging(0.8)), weighting)
    algorithm = fl.scaffold(lr=per_round(0.1, 0.9), steps=3, option=option, server_lr=0.8, weighting=weighting)
    result = run(problem, algorithm, start, cohorts, backend)
    assert_same(result, expected)
    c, of = controls(result, 4)
    np.testing.assert_allclose(c, control.c, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(of, control.of, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(c, of.mean(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("option", ["II", "I"])
def test_decaying_steps_and_rates(backend, cohorts, option):
    """The rates really used: c_i+ = c_i - c + (x - y_K) / sum_k l_k, K_t = 5, 3, 2, 1, 1."""
    control = Control(PLANE, 3, option)
    client = sgd(PLANE, lambda t, k: 0.1 * 0.6**k, lambda t: (5, 3, 2, 1, 1)[t], control=control)
    expected = federate(PLANE, START, cohorts, client, control.closing(averaging()))
    algorithm = fl.scaffold(lr=per_step(0.1, 0.6), steps=decaying_k(5, 0.5), option=option)
    assert_same(run(PLANE, algorithm, START, cohorts, backend), expected)


def test_steps_counted_in_epochs(backend):
    """Two epochs of batches of 2: A takes 2 steps and B 4, so c_A = (x - y) / 2l and c_B = (x - y) / 4l.

    B: r = 1/2 -> 81/512, x - y = 175/512, over 4/8: c_B = (0, 175/256). A as above, (-3/2, -3/2).
    """
    result = run(HAND, fl.scaffold(lr=EIGHTH, epochs=2), ZERO, BOTH, backend, batch_size=2)
    assert_same(result, np.array([(3 / 16, (3 / 8 - 175 / 512) / 2)]))
    _, of = controls(result)
    np.testing.assert_array_equal(of, [(-3 / 2, -3 / 2), (0, 175 / 256)])


def test_option_one_sees_all_rows(backend):
    """Option I's gradient is on the full local data also when steps are minibatches.

    One round from START with batches of one row: c_i must be grad f_i(START) on all rows.
    """
    result = run(PLANE, fl.scaffold(lr=0.01, steps=2, option="I"), START, [[0, 1, 2, 3]], backend, batch_size=1)
    _, of = controls(result, 4)
    np.testing.assert_allclose(of, [PLANE.gradient(i, START) for i in range(4)], rtol=1e-12, atol=1e-12)
