"""Every pair of features composes, and so do all larger sets, on the two-parameter problem (w, b) of `problem.LINE`.

The combination is written out in one loop below, apart from `reference.py`:
    FedDecay     step k at rate l .6^k
    FedNAR       d = g + .3 y, shortened to norm 1.5
    decaying K   K_t = 5, 3, 2, 1 (ceil(5 / 2^t)) instead of 3
    prox         g += .7 (y - x)
    control      g += c - c_i; c_i+ = c_i - c + (x - y) / sum_k l_k; c += (1/N) sum (c_i+ - c_i)
    momentum     u = .8 u + D, x += u
    Adam         m = .9 m + .1 D, v = .99 v + .01 D^2, v_{-1} = 1e-6, x += .1 m / (sqrt(v) + .001)
    both servers momentum first, Adam on u
The proximal term and SCAFFOLD's control are two objectives of a client and have no common expression.
"""

from itertools import combinations

import numpy as np
import pytest

from fedtempo import algorithms as fl
from fedtempo.client.transforms import chain, momentum, scale_by_adam
from fedtempo.schedules import decaying_k, per_round, per_step
from tests.numbers.single_model.problem import LINE, LINE_START, assert_same, control_of, flat, run
from tests.numbers.single_model.reference import GROWTH, Adaptive, NormalizedDecay, federate, last_update, sgd

FEATURES = ("decay", "nar", "k", "adam", "prox", "control", "momentum")
COHORTS = [[0, 1, 2], [0, 2], [1, 2], [0, 1, 2]]


def by_hand(features):
    x, c, of = LINE_START, np.zeros(2), np.zeros((3, 2))
    u, m, v, models = np.zeros(2), np.zeros(2), np.full(2, 1e-6), []
    for t, cohort in enumerate(COHORTS):
        total, change = np.zeros(2), np.zeros(2)
        for i in cohort:
            y, moved = x, 0.0
            for k in range((5, 3, 2, 1)[t] if "k" in features else 3):
                rate = 0.1 * 0.6**k if "decay" in features else 0.1
                g = LINE.gradient(i, y)
                if "prox" in features:
                    g = g + 0.7 * (y - x)
                if "control" in features:
                    g = g - of[i] + c
                if "nar" in features:
                    g = g + 0.3 * y
                    g = g * min(1.0, 1.5 / np.linalg.norm(g))
                y, moved = y - rate * g, moved + rate
            total = total + (y - x) / len(cohort)
            if "control" in features:
                new = of[i] - c + (x - y) / moved
                change, of[i] = change + (new - of[i]) / 3, new
        c = c + change
        step = total
        if "momentum" in features:
            step = u = 0.8 * u + step
        if "adam" in features:
            m, v = 0.9 * m + 0.1 * step, 0.99 * v + 0.01 * step**2
            step = 0.1 * m / (np.sqrt(v) + 1e-3)
        x = x + step
        models.append(x)
    return np.array(models), of


def in_the_library(features):
    lr = per_step(0.1, 0.6) if "decay" in features else 0.1
    steps = decaying_k(5, 0.5) if "k" in features else 3
    if "control" in features:
        algorithm = fl.scaffold(lr=lr, steps=steps)
    elif "prox" in features:
        algorithm = fl.fedprox(lr=lr, steps=steps, mu=0.7)
    else:
        algorithm = fl.fedavg(lr=lr, steps=steps)
    if "nar" in features:
        algorithm = fl.fednar(algorithm, weight_decay=0.3, max_norm=1.5)
    servers = {"momentum": momentum(0.8), "adam": scale_by_adam()}
    chosen = [server for name, server in servers.items() if name in features]
    if chosen:
        algorithm = fl.with_server(algorithm, chain(*chosen), 0.1 if "adam" in features else 1.0)
    return algorithm


def subsets(sizes):
    found = (set(s) for size in sizes for s in combinations(FEATURES, size))
    return [pytest.param(s, id="+".join(sorted(s))) for s in found if not {"prox", "control"} <= s]


def check(features, backend):
    expected, of = by_hand(features)
    result = run(LINE, in_the_library(features), LINE_START, COHORTS, backend)
    assert_same(result, expected)
    if "control" in features:
        np.testing.assert_allclose([control_of(result, i) for i in range(3)], of, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("features", subsets([2]))
def test_pairs(features, backend):
    check(features, backend)


OTHERS = subsets([0, 1, 3, 4, 5, 6])
FEW = [case for case in OTHERS if len(case.values[0]) < 3 or len(case.values[0]) > 4]


@pytest.mark.parametrize("features", FEW)
def test_few_and_nearly_all(features):
    check(features, "vectorised")


@pytest.mark.slow("sets of three and four; all pairs, and sets of five and more, run every time")
@pytest.mark.parametrize("features", [case for case in OTHERS if case not in FEW])
def test_all_other_sets(features):
    check(features, "vectorised")


def test_each_feature_changes_the_numbers():
    """Otherwise a pair could agree by not being there."""
    for features in map(set, combinations(FEATURES, 2)):
        for one in features:
            assert np.abs(by_hand(features)[0] - by_hand(features - {one})[0]).max() > 1e-3


def test_four_in_one_expression(backend):
    """FedDecay x FedNAR x decaying K x FedAdam, with annealing over rounds: the combination no paper could try.

    l_{t,k} = .1 .9^t .6^k; K_t = 5, 3, 2, 1; d = g + .3 y shortened to 1.5; Reddi's Adam at eta_t = .1 .95^t.
    """
    algorithm = fl.with_server(
        fl.fednar(
            fl.fedavg(lr=per_round(0.1, 0.9) * per_step(1.0, 0.6), steps=decaying_k(5, 0.5)),
            weight_decay=0.3,
            max_norm=1.5,
        ),
        scale_by_adam(),
        per_round(0.1, 0.95),
    )
    shape = NormalizedDecay(0.3, 1.5)
    client = sgd(LINE, lambda t, k: 0.1 * 0.9**t * 0.6**k, lambda t: (5, 3, 2, 1)[t], shape=shape)
    server = Adaptive(GROWTH["adam"], 0.9, 0.99, 1e-3).server(lambda t: 0.1 * 0.95**t)
    result = run(LINE, algorithm, LINE_START, COHORTS, backend)
    assert_same(result, federate(LINE, LINE_START, COHORTS, client, server))
    shape.check(result)


def test_other_ways_to_say_the_same(backend):
    """fedadam of a schedule, fednar around it, fednar around FedDecay with a server: one digest."""
    lr, steps = per_round(0.1, 0.9), decaying_k(5, 0.5)
    nar = {"weight_decay": 0.3, "max_norm": 1.5}
    expressions = [
        fl.fednar(fl.fedadam(lr=lr * per_step(1.0, 0.6), steps=steps, server_lr=0.1), **nar),
        fl.fednar(fl.with_server(fl.feddecay(lr=lr, beta=0.6, steps=steps), scale_by_adam(), 0.1), **nar),
        fl.with_server(fl.fednar(fl.feddecay(lr=lr, beta=0.6, steps=steps), **nar), scale_by_adam(), 0.1),
    ]
    models = [flat(run(LINE, e, LINE_START, COHORTS, backend).params) for e in expressions]
    np.testing.assert_array_equal(models[0], models[1])
    np.testing.assert_array_equal(models[0], models[2])


def test_fednar_around_fomaml(backend):
    """FOMAML sends the last update, so the last clipped direction: y_K - y_{K-1} = -l s d."""
    shape = NormalizedDecay(0.3, 1.5)
    algorithm = fl.fednar(fl.fomaml(lr=0.1, steps=3), weight_decay=0.3, max_norm=1.5)
    result = run(LINE, algorithm, LINE_START, COHORTS, backend)
    assert_same(result, federate(LINE, LINE_START, COHORTS, sgd(LINE, 0.1, 3, shape=shape, sends=last_update)))
    shape.check(result)
