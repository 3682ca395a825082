"""The adviser's rules: directions, hand-worked numbers, limits, and a run on digits."""

import re
import time
from dataclasses import replace
from itertools import product

import pytest
from torch import nn

from fedtempo.data import dirichlet, iid, load
from fedtempo.errors import ConfigError
from fedtempo.models import mlp
from fedtempo.schedules import decaying_k
from fedtempo.theory import (
    Measurements,
    advise,
    advise_for,
    drift,
    fedavg_ratio,
    feddecay_ratio,
    local_steps,
    measure,
)
from fedtempo.theory.advice import last_steps

PLAN = Measurements(
    disagreement=0.5,
    gradient_diversity=4.0,
    smoothness=2.0,
    lr=0.1,
    steps=10,
    rounds=100,
)


def test_beta_gives_the_share_of_fedavgs_ratio_that_disagreement_asks_for():
    ratio = feddecay_ratio(advise(PLAN).beta, 10, 0.1)
    assert ratio == pytest.approx(0.5 * fedavg_ratio(10, 0.1), rel=0.03)


def test_directions():
    shares = [0.0, 0.1, 0.4, 0.8, 1.0]
    advice = [advise(replace(PLAN, disagreement=share)) for share in shares]
    betas, decays = [a.beta for a in advice], [a.k_decay for a in advice]
    assert betas == sorted(betas)
    assert (betas[0], betas[-1]) == (0.2, 1.0)
    assert decays == sorted(decays, reverse=True)
    assert decays[0] == 1.0 > decays[-1]
    flatter = advise(replace(PLAN, smoothness=0.1))
    assert flatter.k_decay > advise(PLAN).k_decay


def test_drift_by_hand():
    """lr L = 0.2, K = 2: phi = (1 - 0.64) / 0.1 = 3.6; 2 * 2 / 3.6 - 1 = 1/9; times one half."""
    assert drift(PLAN, 2) == pytest.approx(0.5 / 9)
    assert drift(PLAN, 1) == pytest.approx(0.0, abs=1e-15)
    assert drift(replace(PLAN, smoothness=-1.0), 5) == 0.0
    assert drift(replace(PLAN, smoothness=50.0), 7) == pytest.approx(0.5 * 6)


def test_k_reaches_its_target_halfway():
    """Drift at K = 3 is 0.5 (6 / 4.88 - 1) = 0.1148 > 0.1 and at K = 2 it is 0.0556, so K must fall from 10 to 2."""
    advice = advise(PLAN)
    counts = local_steps(decaying_k(10, advice.k_decay), 100)
    assert counts[0] == 10
    assert counts[51] == 2
    assert advice.k_decay == pytest.approx(0.2 ** (1 / 50), abs=1e-5)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("smoothness", [0.5, 2.0, 5.0])
def test_k_is_where_the_reason_says_it_is(share, smoothness):
    """Whatever the decay is rounded to: it must bring K to the number in the sentence, and be in it whole."""
    for steps, rounds in product((5, 10, 20, 50, 300), (1, 20, 100, 501, 2000)):
        plan = replace(PLAN, disagreement=share, smoothness=smoothness, steps=steps, rounds=rounds)
        advice, half = advise(plan), max(1, rounds // 2)
        after_half = local_steps(decaying_k(steps, advice.k_decay), half + 1)[half]
        assert after_half == last_steps(plan)
        reason = next(reason for reason in advice.reasons if reason.startswith("K "))
        if advice.k_decay < 1:
            found = re.search(r"decaying by (\S+) a round brings K to (\d+) after", reason)
            assert found is not None and (float(found[1]), int(found[2])) == (advice.k_decay, after_half)
            assert f"K decay = {found[1]}\n" in str(advice)
        else:
            assert f"stay at {after_half}:" in reason


def test_one_local_step_leaves_nothing_to_decay():
    advice = advise(replace(PLAN, steps=1))
    assert (advice.beta, advice.k_decay) == (1.0, 1.0)
    assert "beta does nothing" in str(advice)


def test_reasons_carry_the_numbers():
    text = str(advise(PLAN))
    for part in ("gradient diversity 4.00", "FedAvg 0.45", "50% of FedAvg's", "K to 2"):
        assert part in text
    assert "Gamma is 0.25" in str(advise(replace(PLAN, gamma=0.25)))
    assert "above 1/L = 0.05" in str(advise(replace(PLAN, smoothness=20.0)))
    assert advise(PLAN) == advise(PLAN)


def digits(split):
    return load("digits").split(split, new_clients=0.2, seed=0, min_samples=1)


def test_advice_on_digits_is_fast_repeatable_and_ordered():
    started = time.process_time()
    model = mlp(64, [200], 10)
    plan = {"lr": 0.1, "steps": 10, "rounds": 100}
    similar = advise_for(model, digits(iid(clients=50)), **plan)
    skewed = digits(dirichlet(clients=50, alpha=0.1))
    diverse = advise_for(model, skewed, **plan)
    assert similar.beta < diverse.beta
    assert similar.k_decay > diverse.k_decay
    assert diverse == advise_for(model, skewed, **plan)
    assert diverse.measurements.gamma is None
    assert diverse.measurements.clients == 16
    assert time.process_time() - started < 20


def test_gamma_is_measured_for_convex_models():
    data = digits(dirichlet(clients=50, alpha=0.3))
    measured = measure(nn.Linear(64, 10), data, lr=0.1, steps=5, rounds=10, clients=4, rows=20)
    assert measured.gamma is not None
    assert measured.gamma >= 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"disagreement": 1.5}, r"disagreement must be a number in \[0, 1\]. Got 1.5"),
        ({"gradient_diversity": 0.5}, "gradient_diversity must be a number >= 1"),
        ({"lr": 0.0}, "lr must be a number > 0"),
        ({"steps": 0}, "steps must be an int >= 1"),
        ({"smoothness": float("nan")}, "smoothness must be a finite number"),
    ],
)
def test_wrong_measurements_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(PLAN, **change)
