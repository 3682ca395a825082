"""FedNAR around its six backbones and FedDecay, and the clip-then-decay baseline of its tables.

FedNAR (eqs. 3, 4): d = g + wd y, s = min(1, A / ||d||), y <- y - l_t s d, wd = u_t / l_t, one norm over all parameters.
Baseline (eq. 5): s = min(1, A / ||g||), y <- y - l_t s g - u_t y.
g holds the backbone's proximal and control terms.
"""

import numpy as np
import pytest

from fedtempo import algorithms as fl
from fedtempo.schedules import per_round
from tests.numbers.single_model.problem import (
    EIGHTH,
    HAND,
    PLANE,
    SOFTMAX,
    START,
    B,
    assert_same,
    control_of,
    run,
)
from tests.numbers.single_model.reference import (
    GROWTH,
    Adaptive,
    Control,
    Extrapolation,
    NormalizedDecay,
    averaging,
    descend,
    federate,
    momentum,
    sgd,
)

CORNER = np.array([3.0, 1.0])
WRAPPERS = {"fednar": (fl.fednar, False), "baseline": (fl.clip_then_decay, True)}


def test_fednar_by_hand(backend):
    """Client B at (3, 1), wd = 1, l = 1/8, A = 5/2: g = (0, 3), d = (3, 4), ||d|| = 5, s = 1/2.

    y = (3, 1) - (1/8)(3/2, 2) = (45/16, 3/4). One clipped step of norm 5.
    """
    algorithm = fl.fednar(fl.fedavg(lr=EIGHTH, steps=1), weight_decay=1.0, max_norm=2.5)
    result = run(HAND, algorithm, CORNER, [[B]], backend)
    assert_same(result, np.array([(45 / 16, 3 / 4)]))
    assert result.history[0].measurements == {"clipped_steps": 1.0, "clipped_norm": 5.0}


def test_baseline_by_hand(backend):
    """The same place: ||g|| = 3, s = 5/6, y = (3, 1) - (1/8)((0, 5/2) + (3, 1)) = (21/8, 9/16): unclipped decay."""
    algorithm = fl.clip_then_decay(fl.fedavg(lr=EIGHTH, steps=1), weight_decay=1.0, max_norm=2.5)
    result = run(HAND, algorithm, CORNER, [[B]], backend)
    assert_same(result, np.array([(21 / 8, 9 / 16)]))
    assert result.history[0].measurements == {"clipped_steps": 1.0, "clipped_norm": 3.0}


def test_unclipped_fednar_by_hand(backend):
    """A = 6 > 5: s = 1, y = (3, 1) - (1/8)(3, 4) = (21/8, 1/2), and so is the baseline's. No clipped step."""
    for wrap, _ in WRAPPERS.values():
        algorithm = wrap(fl.fedavg(lr=EIGHTH, steps=1), weight_decay=1.0, max_norm=6.0)
        result = run(HAND, algorithm, CORNER, [[B]], backend)
        assert_same(result, np.array([(21 / 8, 1 / 2)]))
        assert result.history[0].measurements == {"clipped_steps": 0.0, "clipped_norm": 0.0}


def test_proximal_term_is_inside_the_clip_by_hand(backend):
    """FedProx, mu = 4, wd = 0, A = 1, client B at (0, 1), l = 1/8.

    Step 0: g = 3, clipped to 1: b = 7/8. Step 1: g = 11/4 + 4 (-1/8) = 9/4, clipped to 1: b = 3/4. Outside the clip
    the proximal term would give 7/8 - (1/8)(1 - 1/2) = 13/16.
    """
    algorithm = fl.fednar(fl.fedprox(lr=EIGHTH, steps=2, mu=4.0), weight_decay=0.0, max_norm=1.0)
    result = run(HAND, algorithm, np.array([0.0, 1.0]), [[B]], backend)
    assert_same(result, np.array([(0.0, 3 / 4)]))
    assert result.history[0].measurements == {"clipped_steps": 2.0, "clipped_norm": (3 + 9 / 4) / 2}


def adam():
    return Adaptive(GROWTH["adam"], 0.9, 0.99, 1e-3).server(0.1)


BACKBONES = {
    "fedavg": (fl.fedavg, {"server_lr": 0.9}, {}, lambda: averaging(0.9)),
    "fedprox": (fl.fedprox, {"mu": 0.8}, {"mu": 0.8}, averaging),
    "scaffold": (fl.scaffold, {}, {"control": "II"}, averaging),
    "scaffold I": (fl.scaffold, {"option": "I"}, {"control": "I"}, averaging),
    "fedexp": (fl.fedexp, {}, {}, Extrapolation),
    "fedadam": (fl.fedadam, {}, {}, adam),
    "fedavgm": (fl.fedavgm, {}, {}, lambda: momentum(0.9)),
    "feddecay": (fl.feddecay, {"beta": 0.6}, {"factor": 0.6}, averaging),
}


def expected_run(problem, start, cohorts, client, server, shape, weighting="uniform"):
    """The reference with l_t = .1 * .998^(t+1), as the FedNAR paper counts, and K = 4."""
    client, factor = dict(client), client.get("factor", 1.0)
    client.pop("factor", None)
    if option := client.pop("control", None):
        client["control"] = Control(problem, len(start), option)
        server = client["control"].closing(server)

    def rate(t, k):
        return 0.1 * 0.998 ** (t + 1) * factor**k

    return federate(problem, start, cohorts, sgd(problem, rate, 4, shape=shape, **client), server, weighting), client


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_backbones(backend, cohorts, name, wrapper):
    """Clipping acts in some steps and not in others; the counts and mean norms of Figure 5 agree too."""
    build, settings, client, server = BACKBONES[name]
    wrap, baseline = WRAPPERS[wrapper]
    shape = NormalizedDecay(0.3, 2.0, baseline=baseline)
    expected, parts = expected_run(PLANE, START, cohorts, client, server(), shape)
    assert any(shape.norms.values()), "the case must clip somewhere"
    assert any(shape.free.values()), "and not everywhere"
    backbone = build(lr=per_round(0.1 * 0.998, 0.998), steps=4, **settings)
    result = run(PLANE, wrap(backbone, weight_decay=0.3, max_norm=2.0), START, cohorts, backend)
    assert_same(result, expected)
    shape.check(result)
    if "control" in parts:
        found = [control_of(result, i) for i in range(4)]
        np.testing.assert_allclose(found, parts["control"].of, rtol=1e-12, atol=1e-12)


def test_schedules_and_torch_eps(backend, cohorts):
    """wd_t = .3 * .5^t, A_t = 2 * .9^t and clip_grad_norm_'s eps: s = min(1, A / (||d|| + 1e-6)); samples weights."""

    shape = NormalizedDecay(lambda t: 0.3 * 0.5**t, lambda t: 2 * 0.9**t, eps=1e-6)
    expected, _ = expected_run(PLANE, START, cohorts, {}, averaging(), shape, "samples")
    backbone = fl.fedavg(lr=per_round(0.1 * 0.998, 0.998), steps=4, weighting="samples")
    algorithm = fl.fednar(backbone, weight_decay=per_round(0.3, 0.5), max_norm=per_round(2.0, 0.9), eps=1e-6)
    assert_same(run(PLANE, algorithm, START, cohorts, backend), expected)


def test_on_softmax_regression(backend, cohorts):
    """One norm over W and b of a softmax regression."""
    start, shape = np.linspace(-1, 1, 9), NormalizedDecay(0.3, 0.9)
    expected, _ = expected_run(SOFTMAX, start, cohorts, {}, averaging(), shape)
    assert any(shape.norms.values())
    assert any(shape.free.values())
    algorithm = fl.fednar(fl.fedavg(lr=per_round(0.1 * 0.998, 0.998), steps=4), weight_decay=0.3, max_norm=0.9)
    result = run(SOFTMAX, algorithm, start, cohorts, backend)
    assert_same(result, expected)
    shape.check(result)


def test_around_epoch_displacement(backend):
    """FedNAR's steps make up the epoch, whose displacement is then scaled: wd = 1, A = 5/2, beta = 1/2."""
    shape = NormalizedDecay(1.0, 2.5)

    def client(t, i, x):
        y = x
        for e in range(2):
            z = descend(y, lambda y: HAND.gradient(i, y), [EIGHTH] * (1, 2)[i], shape)[-1]
            y = y + 0.5**e * (z - y)
        return y - x

    backbone = fl.feddecay(lr=EIGHTH, beta=0.5, epochs=2, per="epoch_displacement")
    result = run(
        HAND, fl.fednar(backbone, weight_decay=1.0, max_norm=2.5), CORNER, [[B], [0, 1]], backend, batch_size=2
    )
    assert_same(result, federate(HAND, CORNER, [[B], [0, 1]], client))


def test_epochs_of_clients_with_different_numbers_of_steps(backend):
    """A takes 2 and B 4 steps; a padded lane must not count its idle steps as clipped."""
    shape = NormalizedDecay(0.5, 2.0)

    def client(t, i, x):
        return descend(x, lambda y: HAND.gradient(i, y), [EIGHTH] * (2, 4)[i], shape, t)[-1] - x

    expected = federate(HAND, CORNER, [[0, 1]] * 3, client)
    algorithm = fl.fednar(fl.fedavg(lr=EIGHTH, epochs=2), weight_decay=0.5, max_norm=2.0)
    result = run(HAND, algorithm, CORNER, [[0, 1]] * 3, backend, batch_size=2)
    assert_same(result, expected)
    shape.check(result)
