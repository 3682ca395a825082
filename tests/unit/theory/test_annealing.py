"""FedNAR's Condition 1 and Theorems 1 and 2, on random points and along a run."""

import numpy as np
import pytest
import torch

from fedtempo import algorithms as fl
from fedtempo.errors import ConfigError
from fedtempo.schedules import per_round
from fedtempo.theory import check_condition, co_clipped, decay_constant, limit_terms, norm_bound
from tests.numbers.single_model.problem import PLANE, START, run, trace

LR, U0, GAMMA, LIMIT = 0.2, 0.3, 0.9, 1.5


def points(count=200):
    random = torch.Generator().manual_seed(1)
    for t in range(count):
        scale = 10 ** (3 * torch.rand(2, generator=random) - 1)
        gradient, weights = scale[0] * torch.randn(4, generator=random), scale[1] * torch.randn(4, generator=random)
        yield t % 20, gradient.double(), weights.double()


def test_equations_three_and_four_satisfy_the_condition():
    rate, decay = co_clipped(lambda t: LR, lambda t: U0 * GAMMA**t, LIMIT)
    found = check_condition(rate, decay, points(), step=LR * LIMIT, u0=U0, gamma=GAMMA)
    assert found.holds
    assert found.step_margin == pytest.approx(0, abs=1e-9), "some points are clipped to A exactly"


def test_erratum_11_the_conditions_a_is_not_the_one_that_clips():
    """With A itself in place of A max l_t and l_t > 1 the condition fails."""
    rate, decay = co_clipped(lambda t: 2.0, lambda t: 0.0, LIMIT)
    assert not check_condition(rate, decay, points(), step=LIMIT, u0=0.0, gamma=GAMMA).holds
    assert check_condition(rate, decay, points(), step=2 * LIMIT, u0=0.0, gamma=GAMMA).holds


def test_unclipped_decay_breaks_it():
    """Equation 5 does not bound mu x, and a constant decay is above u_0 gamma^t."""
    rate, _ = co_clipped(lambda t: LR, lambda t: 0.0, LIMIT)
    found = check_condition(rate, lambda t, g, x: U0, points(), step=LR * LIMIT, u0=U0, gamma=GAMMA)
    assert found.step_margin < 0
    assert found.decay_margin < 0


def test_theorem_one_along_a_run():
    """||x_t|| stays below ||x_0|| + lambda_g tau A t in every round, with A = l_0 max_norm."""
    backbone = fl.fedavg(lr=per_round(LR, 0.99), steps=4, server_lr=1.3)
    result = run(PLANE, fl.fednar(backbone, weight_decay=0.5, max_norm=LIMIT), 10 * START, [[0, 1, 2, 3]] * 8)
    norms = np.linalg.norm(trace(result), axis=1)
    bounds = [
        norm_bound(float(np.linalg.norm(10 * START)), t + 1, step=LR * LIMIT, steps=4, server_lr=1.3) for t in range(8)
    ]
    assert (norms <= bounds).all()
    moved = np.linalg.norm(np.diff(trace(result), axis=0), axis=1)
    assert (moved <= 1.3 * 4 * LR * LIMIT).all()
    assert moved.max() > 0.5 * 1.3 * 4 * LR * LIMIT, "the bound of a round is of the right size"


def test_the_constant_stops_growing_with_the_rounds():
    settings = {"step": 0.3, "steps": 5}
    values = [decay_constant(2.0, U0, GAMMA, rounds=n, **settings) for n in (1, 50, 500, 5000)]
    assert values == sorted(values)
    assert values[1] == values[2] == values[3]
    assert decay_constant(2.0, 0.0, GAMMA, rounds=50, **settings) == 0


def test_theorem_two_without_weight_decay_is_the_drift_alone():
    settings = {"smoothness": 2.0, "steps": 5, "largest_lr": 0.1, "step": 0.3, "noise": 1.0, "heterogeneity": 0.5}
    without, with_it = (limit_terms(**settings, decay_constant=c) for c in (0.0, 0.7))
    assert without.weight_decay == 0
    assert without.drift == with_it.drift == pytest.approx(2 * 5 * 0.01 * (5 + 4 * 25 * 0.027 + 0.5))
    assert with_it.weight_decay == pytest.approx(2 * 25 * 0.49)


def test_wrong_input_is_named():
    with pytest.raises(ConfigError, match=r"gamma must be a number in \[0, 1\). Got 1.0"):
        decay_constant(1.0, 0.1, 1.0, step=0.1, steps=2, rounds=3)
    with pytest.raises(ConfigError, match=r"steps must be an int >= 1\. Got 0"):
        norm_bound(1.0, 3, step=0.1, steps=0)
