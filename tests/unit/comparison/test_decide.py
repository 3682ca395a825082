"""Convergence, equivalence and power, on numbers that a reader can check."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedtempo.comparison.decide import converged, last_quarter_gain, no_difference, seeds_needed
from fedtempo.errors import ConfigError
from fedtempo.evaluation.over_seeds import half_width


def test_a_curve_that_rises_has_not_converged() -> None:
    rising = [i / 100 for i in range(40)]
    assert last_quarter_gain(rising) == pytest.approx(0.10)
    assert not converged(rising, within=0.05)
    assert converged(rising, within=0.11)


def test_losses_converge_downwards() -> None:
    falling = [1.0, 0.5, 0.3, 0.1]
    assert last_quarter_gain(falling, higher_is_better=False) == pytest.approx(0.2)
    assert not converged(falling, 0.1, higher_is_better=False)


def test_noise_around_a_plateau_is_convergence_though_its_best_keeps_growing() -> None:
    noise = np.random.default_rng(0).normal(0.8, 0.01, 400)
    noise[-1] = noise.max() + 0.02
    assert converged(noise.tolist(), within=0.005)


def test_too_few_evaluations_never_converge() -> None:
    assert math.isnan(last_quarter_gain([0.5, 0.5, 0.5]))
    assert not converged([0.5, 0.5, 0.5], within=1.0)


def test_an_interval_at_the_margin_is_not_inside() -> None:
    assert no_difference(-0.009, 0.009, 0.01)
    assert not no_difference(-0.01, 0.0, 0.01)
    assert not no_difference(-math.inf, math.inf, 0.01)


def test_as_many_seeds_as_it_says_decide() -> None:
    differences = [0.03, -0.02, 0.025, -0.015, 0.01]
    count = seeds_needed(differences, margin=0.0)
    assert count is not None
    spread, mean = np.std(differences, ddof=1), np.mean(differences)
    for seeds, decided in ((count - 1, False), (count, True)):
        # A sample of that size with exactly this mean and spread.
        sample = np.linspace(-1, 1, seeds)
        sample = mean + spread * (sample - sample.mean()) / sample.std(ddof=1)
        assert bool(half_width(sample.tolist()) < abs(mean)) is decided


def test_a_small_difference_is_decided_by_the_margin() -> None:
    assert seeds_needed([0.001, -0.001, 0.0], margin=0.01) == 2
    wide = seeds_needed([0.004, 0.006, -0.004, 0.01], margin=0.03)
    assert wide is not None
    assert wide < (seeds_needed([0.004, 0.006, -0.004, 0.01], margin=0.0) or 1001)


def test_what_no_number_of_seeds_decides() -> None:
    assert seeds_needed([1.0, -1.0], margin=0.0) is None
    assert seeds_needed([0.5], margin=0.01) is None
    assert seeds_needed([0.5, math.nan], margin=0.01) is None
    with pytest.raises(ConfigError, match="margin must be a number >= 0"):
        seeds_needed([0.1, 0.2], margin=-1.0)
