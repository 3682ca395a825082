"""Local steps of a K schedule: the toy's 4,586 and the nine fractions of the decaying-K paper's Table 1."""

import math

import pytest

from fedtempo.errors import ConfigError
from fedtempo.schedules import constant, decaying_k, inverse_time, piecewise
from fedtempo.theory import local_steps, step_fraction, steps_saved, total_local_steps

TABLE_1 = {
    "StackOverflow": [(10, 0.9996, 0.55), (33, 0.9996, 0.51), (100, 0.9996, 0.50)],
    "FEMNIST": [(3, 0.9996, 0.65), (10, 0.9996, 0.55), (33, 0.999, 0.26)],
    "Shakespeare": [(10, 0.9996, 0.55), (33, 0.9996, 0.51), (100, 0.9996, 0.50)],
}


@pytest.mark.parametrize(("k0", "rate", "printed"), [row for rows in TABLE_1.values() for row in rows], ids=str)
def test_table_1(k0, rate, printed):
    assert round(step_fraction(decaying_k(k0, rate), 4000), 2) == printed


def test_erratum_15_k_of_femnist_is_33():
    """Table 5 prints K = 100 for FEMNIST's third column; 0.26 is what K = 33 gives."""
    assert step_fraction(decaying_k(33, 0.999), 4000) == pytest.approx(0.2601, abs=5e-5)
    assert step_fraction(decaying_k(100, 0.999), 4000) == pytest.approx(0.2505, abs=5e-5)


def test_toy():
    schedule = decaying_k(10, 0.995)
    assert total_local_steps(schedule, 3000) == 4586
    assert total_local_steps(10, 3000) == 30000
    assert steps_saved(schedule, 3000) == pytest.approx(1 - 4586 / 30000)
    assert local_steps(schedule, 3000).index(1) == 460


def test_other_schedules():
    assert local_steps(piecewise(4, {2: 0.5}), 4) == [4, 4, 2, 2]
    assert local_steps(inverse_time(8, 1), 4) == [8, 4, 3, 2]
    assert steps_saved(constant(7), 5) == 0.0


def test_guard_against_rounding_up():
    assert local_steps(constant(10.0000000001), 1) == [10]
    assert local_steps(decaying_k(1000, 0.1), 4) == [1000, 100, 10, 1]


def test_wrong_input_is_named():
    with pytest.raises(ConfigError, match=r"rounds must be an int >= 1. Got 0"):
        local_steps(3, 0)
    with pytest.raises(ConfigError, match=r"steps in round 1 must be at least 1. Got 0.0"):
        local_steps(piecewise(2, {1: 0.0}), 3)


def test_at_least_one_step_is_taken_as_in_training():
    """Figure 1's d = 0.99 over 3,000 rounds: K falls below any rounding guard, and training takes one step."""
    schedule = decaying_k(10, 0.99)
    by_hand = [max(1, math.ceil(10 * 0.99**t - 1e-9)) for t in range(3000)]
    assert local_steps(schedule, 3000) == by_hand
    assert by_hand[230:] == [1] * 2770 and by_hand[229] == 2
    assert total_local_steps(schedule, 3000) == sum(by_hand)
    assert step_fraction(schedule, 3000) == sum(by_hand) / 30_000
    assert steps_saved(schedule, 3000) == 1 - sum(by_hand) / 30_000
