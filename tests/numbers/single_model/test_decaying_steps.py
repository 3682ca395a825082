"""Decaying K and the decaying rates beside it: K_t = ceil(K_0 d^t), t from 0, with rounding errors forgiven.

Per round K_t is a number of SGD steps, so the cost ledger must count them: |S_t| K_t, and |S_t| (K_0 - K_t) saved.
"""

import math

import numpy as np
import pytest

from fedtempo import algorithms as fl
from fedtempo.schedules import (
    by_loss,
    decaying_k,
    decaying_lr,
    inverse_time,
    on_plateau,
    per_round,
    piecewise,
    sequence,
)
from tests.numbers.single_model.problem import EIGHTH, HAND, LINE, LINE_START, PLANE, START, ZERO, A, assert_same, run
from tests.numbers.single_model.reference import GROWTH, Adaptive, averaging, descend, federate, sgd


def counted(result):
    """Steps per participant of every round, from the ledger."""
    return [report.costs.steps / len(report.clients) for report in result.history]


def test_by_hand(backend):
    """K_0 = 4, d = 1/2: K = 4, 2, 1, 1. Client A, l = 1/8: every step halves the residual r = w + b - 1.

    r: -1 -> -1/16 -> -1/64 -> -1/128 -> -1/256 and w = b = (1 + r) / 2. 8 steps taken; 0, 2, 3, 3 saved.
    """
    result = run(HAND, fl.fedavg(lr=EIGHTH, steps=decaying_k(4, 0.5)), ZERO, [[A]] * 4, backend)
    residuals = np.array([1 / 16, 1 / 64, 1 / 128, 1 / 256])
    assert_same(result, np.repeat((1 - residuals)[:, None] / 2, 2, axis=1), 0)
    assert counted(result) == [4, 2, 1, 1]
    assert [report.costs.steps_saved for report in result.history] == [0, 2, 3, 3]
    assert (result.costs.steps, result.costs.steps_saved) == (8, 8)


def test_the_ceiling_forgives_rounding_errors(backend):
    """100 * .1^2 is 1.0000000000000002 in floating point: K = 100, 10, 1 and not 2."""
    assert math.ceil(100 * 0.1**2) == 2
    result = run(HAND, fl.fedavg(lr=EIGHTH, steps=decaying_k(100, 0.1)), ZERO, [[A]] * 4, backend)
    assert counted(result) == [100, 10, 1, 1]


STEPS = {
    "K_0 d^t": (decaying_k(7, 0.6), (7, 5, 3, 2, 1)),  # 7, 4.2, 2.52, 1.512, .9072
    "per_round": (per_round(6, 0.5), (6, 3, 2, 1, 1)),  # 6, 3, 1.5, .75, .375
    "c / (t + d)": (inverse_time(12, 2.5), (5, 4, 3, 3, 2)),  # 4.8, 3.43, 2.67, 2.18, 1.85
    "drops": (piecewise(6, {1: 0.5, 3: 0.5}), (6, 3, 3, 2, 2)),  # 6, 3, 3, 1.5, 1.5
    "list": (sequence([3, 1, 4], over="round"), (3, 1, 4, 4, 4)),
    "function": (lambda now: 5 - now.round, (5, 4, 3, 2, 1)),
}


@pytest.mark.parametrize("name", STEPS)
def test_schedules_of_steps(backend, cohorts, name):
    """K_t steps at rate l in round t; x <- x + sum (n_i / n_S) D_i."""
    schedule, steps = STEPS[name]
    expected = federate(PLANE, START, cohorts, sgd(PLANE, 0.1, lambda t: steps[t]), None, "samples")
    result = run(PLANE, fl.fedavg(lr=0.1, steps=schedule, weighting="samples"), START, cohorts, backend)
    assert_same(result, expected)
    assert counted(result) == list(steps[: len(cohorts)])


SCHEMES = {
    "K": ({"steps": decaying_k(7, 0.6)}, {"steps": lambda t: (7, 5, 3, 2, 1)[t]}, 0.3),
    "gamma": ({"lr": decaying_lr(0.1, 0.6)}, {"lr": lambda t, k: 0.1 * 0.6**t}, 0.3),
    "eta": ({"server_lr": decaying_lr(0.3, 0.6)}, {}, lambda t: 0.3 * 0.6**t),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_three_schemes_with_both_servers(backend, cohorts, scheme):
    """The paper's schemes differ in one argument. FedSGD: x - eta q; FedAdam (Algorithm 3): bias corrected, uniform."""
    settings, client, eta = SCHEMES[scheme]
    reference = sgd(PLANE, client.get("lr", 0.1), client.get("steps", 4))
    settings = {"lr": 0.1, "steps": 4, "server_lr": 0.3, **settings}
    expected = federate(PLANE, START, cohorts, reference, averaging(eta), "samples")
    assert_same(run(PLANE, fl.fedavg(**settings, weighting="samples"), START, cohorts, backend), expected)
    adam = Adaptive(GROWTH["adam"], 0.9, 0.999, 1e-8, first=0.0, corrected=True)
    expected = federate(PLANE, START, cohorts, reference, adam.server(eta))
    assert_same(run(PLANE, fl.fedadam(**settings, bias_correction=True), START, cohorts, backend), expected)


def test_steps_by_training_loss(backend):
    """K_t = ceil(K_0 min(1, F_t / F_0)^(1/3)); F_t is the loss of the rounds before t, smoothed by .9 / .1.

    A round's loss is the mean over the cohort and over its local steps. Everything is recomputed here.
    """
    x, cohorts, first, smoothed, models, steps = LINE_START, [[0, 1, 2], [0, 1], [1, 2]] * 4, None, None, [], []
    for cohort in cohorts:
        ratio = 1.0 if first is None else smoothed / first
        steps.append(math.ceil(8 * min(1.0, ratio) ** (1 / 3)))
        paths = {i: descend(x, lambda y, i=i: LINE.gradient(i, y), [0.05] * steps[-1]) for i in cohort}
        loss = np.mean([np.mean([LINE.loss(i, y) for y in path[:-1]]) for i, path in paths.items()])
        first, smoothed = (loss, loss) if first is None else (first, 0.9 * smoothed + 0.1 * loss)
        x = x + np.mean([path[-1] - x for path in paths.values()], axis=0)
        models.append(x)
    result = run(LINE, fl.fedavg(lr=0.05, steps=by_loss(8)), LINE_START, cohorts, backend)
    assert steps[0] == 8 > steps[-1]
    assert counted(result) == steps
    assert_same(result, np.array(models))


def test_steps_on_a_plateau(backend):
    """A rate of 1e-9 moves nothing: after ten rounds without a gain of 1 % beyond the first, K falls from 6 to 3.

    Round 0 sets the best; rounds 1 to 10 are the ten without a gain, so rounds 0 .. 10 take 6 steps, rounds 11 .. 20
    (ten more) 3, and from round 21 on 6/4 = 1.5, so 2.
    """
    result = run(LINE, fl.fedavg(lr=1e-9, steps=on_plateau(6, 0.5)), LINE_START, [[0, 1, 2]] * 23, backend)
    assert counted(result) == [6] * 11 + [3] * 10 + [2] * 2


def test_rates_on_a_plateau(backend):
    """The same rule for the client's and the server's rate: from round 11 on a tenth of each."""
    cohorts = [[0, 1, 2]] * 13
    algorithm = fl.fedavg(lr=on_plateau(1e-6, 0.1), steps=2, server_lr=on_plateau(2.0, 0.1))
    client = sgd(LINE, lambda t, k: 1e-6 if t < 11 else 1e-7, 2)
    expected = federate(LINE, LINE_START, cohorts, client, averaging(lambda t: 2.0 if t < 11 else 0.2))
    assert_same(run(LINE, algorithm, LINE_START, cohorts, backend), expected)
