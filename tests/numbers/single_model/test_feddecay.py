"""FedDecay: step j of a round has rate l b_j; per step (the papers), per epoch and per epoch displacement (their code).

Hand-worked cases: A and B of `problem.py` from (0, 0), l = 1/8; first gradients (-2, -2) and (0, 1).
"""

import numpy as np
import pytest

from fedtempo import algorithms as fl
from fedtempo.schedules import inverse_time, linear_in_round, per_round, per_step, sequence
from tests.numbers.single_model.problem import EIGHTH, HAND, PLANE, SOFTMAX, START, ZERO, A, B, assert_same, run
from tests.numbers.single_model.reference import averaging, descend, federate, sgd

BOTH = [[A, B]]


def test_exponential_by_hand(backend):
    """beta = 1/2, K = 2: rates 1/8, 1/16.

    A: (1/4, 1/4), then gradient (-1, -1): (5/16, 5/16). B: -1/8, then gradient 3/4: -1/8 - 3/64 = -11/64.
    Mean: (5/32, (20/64 - 11/64) / 2) = (5/32, 9/128).
    """
    assert_same(
        run(HAND, fl.feddecay(lr=EIGHTH, beta=0.5, steps=2), ZERO, BOTH, backend), np.array([(5 / 32, 9 / 128)]), 0
    )


def test_linear_by_hand(backend):
    """beta = 1/2, K = 4, client A: b = max(1 - j/2, 0) = 1, 1/2, 0, 0. Two moves as above, then none: (5/16, 5/16)."""
    algorithm = fl.feddecay(lr=EIGHTH, beta=0.5, steps=4, decay="linear")
    assert_same(run(HAND, algorithm, ZERO, [[A]], backend), np.array([(5 / 16, 5 / 16)]), 0)


def test_epoch_displacement_by_hand(backend):
    """Client B, beta = 1/2, 2 epochs of 2 batches (3 equal rows, batches of 2 and 1), l = 1/8, residual r = b + 1/2.

    Epoch 0 at l, b_0 = 1: r = 1/2 -> 3/8 -> 9/32. Epoch 1 at l: 9/32 -> 27/128 -> 81/512; its displacement
    81/512 - 144/512 = -63/512 is halved: r = 288/1024 - 63/1024 = 225/1024, b = -287/1024.
    Per epoch rate instead: epoch 1 at l/2 = 1/16, factor 7/8 twice: r = 9/32 * 49/64 = 441/2048, b = -583/2048.
    Per step: rates 1/8, 1/16, 1/32, 1/64, factors 3/4, 7/8, 15/16, 31/32: r = 1/2 * 9765/16384, b = -6619/32768.
    """
    expected = {"epoch_displacement": -287 / 1024, "epoch": -583 / 2048, "step": -6619 / 32768}
    for per, bias in expected.items():
        algorithm = fl.feddecay(lr=EIGHTH, beta=0.5, epochs=2, per=per)
        assert_same(run(HAND, algorithm, ZERO, [[B]], backend, batch_size=2), np.array([(0.0, bias)]))


FACTORS = {
    "exponential": ({"beta": 0.6}, lambda j: 0.6**j),
    "beta=0": ({"beta": 0.0}, lambda j: 1.0 if j == 0 else 0.0),
    "linear": ({"beta": 0.7, "decay": "linear"}, lambda j: max(1 - j * 0.3, 0.0)),
    "sequence": ({"decay": [1.0, 0.8, 0.3, 0.9]}, lambda j: (1.0, 0.8, 0.3, 0.9)[j]),
}


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_per_step(backend, cohorts, name, weighting):
    """y_{j+1} = y_j - l b_j grad f_i(y_j), K = 4; the sequence starts afresh each round."""
    settings, factor = FACTORS[name]
    algorithm = fl.feddecay(lr=0.15, steps=4, weighting=weighting, server_lr=1.1, **settings)
    client = sgd(PLANE, lambda t, k: 0.15 * factor(k), 4)
    assert_same(
        run(PLANE, algorithm, START, cohorts, backend),
        federate(PLANE, START, cohorts, client, averaging(1.1), weighting),
    )


def test_on_softmax_regression(backend, cohorts):
    """The same update on cross entropy, nine parameters."""
    start = np.linspace(-1, 1, 9)
    client = sgd(SOFTMAX, lambda t, k: 0.5 * 0.6**k, 4)
    result = run(SOFTMAX, fl.feddecay(lr=0.5, beta=0.6, steps=4), start, cohorts, backend)
    assert_same(result, federate(SOFTMAX, start, cohorts, client))


def test_the_theorems_schedule(backend, cohorts):
    """Rate of step k in round n: alpha_n b_k with alpha_n = c / (n + d), n from 0."""
    client = sgd(PLANE, lambda t, k: 0.6 / (t + 4.0) * 0.6**k, 4)
    algorithm = fl.feddecay(lr=inverse_time(0.6, 4.0), beta=0.6, steps=4)
    assert_same(run(PLANE, algorithm, START, cohorts, backend), federate(PLANE, START, cohorts, client))


def test_it_is_fedavg_with_a_schedule(backend, cohorts):
    """feddecay(l, beta) and fedavg(lr=schedule) are the same bits."""
    pairs = [
        (fl.feddecay(lr=0.15, beta=0.6, steps=4), per_step(0.15, 0.6)),
        (fl.feddecay(lr=0.15, beta=0.6, steps=4, decay="linear"), linear_in_round(0.15, 0.6)),
        (fl.feddecay(lr=per_round(0.15, 0.9), decay=[1, 0.5], steps=4), per_round(0.15, 0.9) * sequence([1, 0.5])),
    ]
    for decayed, rate in pairs:
        scheduled = run(PLANE, fl.fedavg(lr=rate, steps=4), START, cohorts, backend)
        assert run(PLANE, decayed, START, cohorts, backend).digest() == scheduled.digest()


def epochs_of(i: int, epochs: int) -> list[int]:
    """The epoch of every step: A has one batch an epoch, B (3 rows in batches of 2) two."""
    return [e for e in range(epochs) for _ in range((1, 2)[i])]


@pytest.mark.parametrize("name", FACTORS)
def test_per_epoch(backend, name):
    """Rate l b_e for all batches of epoch e (the released code's 'batch' mode); equal rows, so batch order is moot."""
    settings, factor = FACTORS[name]

    def client(t, i, x):
        rates = [EIGHTH * factor(e) for e in epochs_of(i, 3)]
        return descend(x, lambda y: HAND.gradient(i, y), rates)[-1] - x

    algorithm = fl.feddecay(lr=EIGHTH, epochs=3, per="epoch", **settings)
    result = run(HAND, algorithm, ZERO, [[A, B], [B], [A, B]], backend, batch_size=2)
    assert_same(result, federate(HAND, ZERO, [[A, B], [B], [A, B]], client))


@pytest.mark.parametrize("name", FACTORS)
def test_per_epoch_displacement(backend, name):
    """Epoch e runs at l from y_e to z_e, then y_{e+1} = y_e + b_e (z_e - y_e) (the released code's default)."""
    settings, factor = FACTORS[name]

    def client(t, i, x):
        y = x
        for e in range(3):
            z = descend(y, lambda y: HAND.gradient(i, y), [EIGHTH] * (1, 2)[i])[-1]
            y = y + factor(e) * (z - y)
        return y - x

    algorithm = fl.feddecay(lr=EIGHTH, epochs=3, per="epoch_displacement", **settings)
    result = run(HAND, algorithm, ZERO, [[A, B], [B], [A, B]], backend, batch_size=2)
    assert_same(result, federate(HAND, ZERO, [[A, B], [B], [A, B]], client))


def test_epoch_displacement_of_an_unfinished_epoch(backend):
    """K = 3 steps of B: epoch 0 has two, epoch 1 one, and that one step's displacement is scaled by beta.

    r = 1/2 -> 9/32 (epoch 0); one step at l: 27/128, displacement -9/128, halved: 9/32 - 9/256 = 63/256; b = -65/256.
    """
    algorithm = fl.feddecay(lr=EIGHTH, beta=0.5, steps=3, per="epoch_displacement")
    assert_same(run(HAND, algorithm, ZERO, [[B]], backend, batch_size=2), np.array([(0.0, -65 / 256)]))


@pytest.mark.parametrize("per", ["epoch", "epoch_displacement"])
def test_all_granularities_coincide_on_the_full_batch(backend, cohorts, per):
    """One batch an epoch: an epoch is a step, and scaling its displacement is scaling its rate."""
    by_step = run(PLANE, fl.feddecay(lr=0.15, beta=0.6, steps=4), START, cohorts, backend)
    by_epoch = run(PLANE, fl.feddecay(lr=0.15, beta=0.6, epochs=4, per=per), START, cohorts, backend)
    assert_same(by_epoch, np.array([np.concatenate([r.params["weight"], r.params["bias"]]) for r in by_step.history]))
