"""Nobody who knows the seed and the files of a private run learns more about a client than epsilon allows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.randomness import seed_for
from fedtempo.server import robust
from fedtempo.server.noise import KEY_BYTES, Secret
from tests.faults import distinguishing
from tests.faults.distinguishing import CASES, accounted, proven_epsilon, rounds_alone

DELTA = 1e-5
COHORT = [[0, 1, 2, 3, 4]]


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another key in every run, and the same ones every time: what is measured with them has an error of its own."""
    random, drawn = np.random.default_rng(0), []

    def next_key() -> Secret:
        drawn.append(Secret(random.bytes(KEY_BYTES)))
        return drawn[-1]

    for module in (robust, distinguishing):
        monkeypatch.setattr(module, "fresh_secret", next_key)
    yield
    assert drawn


def moved(digits: ft.data.FederatedData, aggregator: robust.Aggregator) -> tuple[dict[str, torch.Tensor], ft.Result]:
    result = ft.run(
        model=ft.models.mlp(64, [8], 10),
        data=digits,
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=3),
        rounds=1,
        cohorts=COHORT,
        evaluation=None,
        aggregator=aggregator,
        dtype=torch.float64,
        backend="serial",
    )
    return {n: p - result.experiment.first_shared[n] for n, p in result.params.items()}, result


@pytest.mark.usefixtures("keys")
def test_the_runs_seed_does_not_predict_the_noise(digits: ft.data.FederatedData) -> None:
    """Noise drawn from the seed could be subtracted: that left the clipped mean to 3e-8. Now it is as far as ever."""
    bound, noise = 0.05, 1.0
    mean, _ = moved(digits, robust.norm_bounded(bound))
    seen, _ = moved(digits, robust.private_mean(bound, noise))
    random = torch.Generator().manual_seed(seed_for(0, "noise", 0))
    left = {}
    for name, value in seen.items():
        guess = torch.randn(value.shape, generator=random, dtype=torch.float64) * noise * bound / len(COHORT[0])
        left[name] = value - guess - mean[name]
    apart = torch.cat([d.flatten() for d in left.values()]).std().item()
    assert apart == pytest.approx(2**0.5 * noise * bound / len(COHORT[0]), rel=0.1)  # of the same keys every time


@pytest.mark.usefixtures("keys")
def test_whole_runs_give_away_no_more_than_epsilon() -> None:
    """60 runs of each world prove nothing; noise that the seed predicts would prove an epsilon above 2."""
    cohort, absent, _ = CASES["everybody, add-remove"]
    assert proven_epsilon(60, 4.0, cohort, absent, DELTA) <= robust.epsilon(4.0, 1, 1.0, DELTA) < 2


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("case", CASES)
def test_rounds_give_away_something_and_no_more_than_epsilon(case: str) -> None:
    """At little noise the attack sees the canary, so it is a real one, and stays below what was accounted for."""
    cohort, absent, how = CASES[case]
    proven = proven_epsilon(1000, 1.0, cohort, absent, DELTA, rounds_alone)
    assert 0 < proven <= accounted(1.0, how, DELTA)


@pytest.mark.usefixtures("keys")
@pytest.mark.slow("thousands of whole runs")
@pytest.mark.parametrize("noise", [1.0, 4.0])
@pytest.mark.parametrize("case", CASES)
def test_many_rounds_give_away_no_more_than_epsilon(case: str, noise: float) -> None:
    cohort, absent, how = CASES[case]
    said = accounted(noise, how, DELTA)
    assert proven_epsilon(1000, noise, cohort, absent, DELTA) <= said
    assert proven_epsilon(40_000, noise, cohort, absent, DELTA, rounds_alone) <= said


def test_the_attack_finds_a_mechanism_that_lies() -> None:
    """Scores that separate the worlds prove far more than the epsilon that was claimed."""
    from tests.faults.distinguishing import lower_bound

    random = np.random.default_rng(0)
    assert lower_bound(random.normal(0, 0.1, 400), random.normal(1, 0.1, 400), DELTA) > 3
    assert lower_bound(random.normal(0, 1, 4000), random.normal(0, 1, 4000), DELTA) < 0.5
