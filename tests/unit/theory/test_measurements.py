"""What is measured before training: hand-worked numbers, limits, what is said of them, and a run on digits."""

import time
from dataclasses import replace

import pytest
from torch import nn

from fedtempo.data import dirichlet, iid, load
from fedtempo.errors import ConfigError
from fedtempo.models import mlp
from fedtempo.theory import Measurements, drift, measure

PLAN = Measurements(
    disagreement=0.5,
    gradient_diversity=4.0,
    smoothness=2.0,
    lr=0.1,
    steps=10,
    rounds=100,
)


def test_drift_by_hand():
    """lr L = 0.2, K = 2: phi = (1 - 0.64) / 0.1 = 3.6; 2 * 2 / 3.6 - 1 = 1/9; times one half."""
    assert drift(PLAN, 2) == pytest.approx(0.5 / 9)
    assert drift(PLAN, 1) == pytest.approx(0.0, abs=1e-12)
    assert drift(replace(PLAN, smoothness=-1.0), 5) == 0.0
    assert drift(replace(PLAN, smoothness=50.0), 7) == pytest.approx(0.5 * 6)
    assert replace(PLAN, steps=2).drift == drift(PLAN, 2)
    assert replace(PLAN, disagreement=None).drift is None


def test_ratio_is_fedavgs():
    assert PLAN.ratio == pytest.approx(0.45)
    assert replace(PLAN, steps=1).ratio == 0.0


def test_findings_carry_the_numbers_and_suggest_nothing():
    text = str(PLAN)
    for part in ("gradient diversity 4.00, of which 50%", "R is 0.45 with FedAvg's 10 steps", "drift of K = 10 is 0."):
        assert part in text
    assert "Gamma is 0.25" in str(replace(PLAN, gamma=0.25))
    assert "above 1/L = 0.05" in str(replace(PLAN, smoothness=20.0))
    assert "No beta and no decay of K follows from these numbers" in text
    unknown = replace(PLAN, disagreement=None).findings
    assert "with one row per client nobody can tell" in unknown[0] and "drift of K = 10 can't be told" in unknown[2]


def digits(split):
    return load("digits").split(split, new_clients=0.2, seed=0, min_samples=1)


def test_measuring_digits_is_fast_repeatable_and_ordered():
    started = time.process_time()
    model = mlp(64, [200], 10)
    plan = {"lr": 0.1, "steps": 10, "rounds": 100}
    similar = measure(model, digits(iid(clients=50)), **plan)
    skewed = digits(dirichlet(clients=50, alpha=0.1))
    diverse = measure(model, skewed, **plan)
    assert similar.disagreement < diverse.disagreement
    assert similar.drift < diverse.drift
    assert diverse == measure(model, skewed, **plan)
    assert diverse.gamma is None
    assert diverse.clients == 16
    assert time.process_time() - started < 20


def test_gamma_is_measured_for_convex_models():
    data = digits(dirichlet(clients=50, alpha=0.3))
    measured = measure(nn.Linear(64, 10), data, lr=0.1, steps=5, rounds=10, clients=4, rows=20)
    assert measured.gamma is not None
    assert measured.gamma >= 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"disagreement": 1.5}, r"disagreement must be a number in \[0, 1\], or None. Got 1.5"),
        ({"gradient_diversity": 0.5}, "gradient_diversity must be a number >= 1"),
        ({"lr": 0.0}, "lr must be a number > 0"),
        ({"steps": 0}, "steps must be an int >= 1"),
        ({"smoothness": float("nan")}, "smoothness must be a finite number"),
    ],
)
def test_wrong_measurements_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(PLAN, **change)
