"""The personalization ratio: hand-worked sums, closed forms of Table 1, limits, and erratum 1."""

import math
from fractions import Fraction

import pytest

from fedtempo.errors import ConfigError
from fedtempo.schedules import Now, constant, inverse_time, linear_in_round, per_round, per_step, sequence
from fedtempo.theory import (
    beta_for_ratio,
    fedavg_ratio,
    feddecay_coefficients,
    feddecay_ratio,
    fedsgd_ratio,
    fomaml_ratio,
    gradient_coefficients,
    personalization_ratio,
    schedule_ratio,
    within_round,
)


def test_general_sum_by_hand():
    """b = (2, 1, 3), lr = 1/2: B = (0, 2, 3), B(K) = 6; sum b_j B(j) = 0 + 2 + 9 = 11; weights 6 and 11/2."""
    coefficients = gradient_coefficients([2, 1, 3], lr=0.5)
    assert (coefficients.avg_grad, coefficients.avg_grad_inner) == (6.0, 5.5)
    assert coefficients.ratio == personalization_ratio([2, 1, 3], lr=0.5) == 5.5 / 6


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 57])
@pytest.mark.parametrize("beta", [0.0, 0.2, 0.6, 0.999, 1.0])
def test_closed_forms_equal_the_general_sum(steps, beta):
    factors = [beta**j for j in range(steps)]
    general = gradient_coefficients(factors, lr=0.3)
    closed = feddecay_coefficients(beta, steps, lr=0.3)
    assert closed.avg_grad == pytest.approx(general.avg_grad, rel=1e-11)
    assert closed.avg_grad_inner == pytest.approx(general.avg_grad_inner, rel=1e-11)
    assert feddecay_ratio(beta, steps, 0.3) == pytest.approx(general.ratio, rel=1e-11)


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
def test_table_1_for_fedsgd_fedavg_and_fomaml(steps):
    """FOMAML walks K steps of equal length and sends the last gradient alone: B(K-1) / 1 = K - 1."""
    assert personalization_ratio([1.0] + [0.0] * (steps - 1), lr=0.2) == fedsgd_ratio() == 0.0
    assert personalization_ratio([1.0] * steps, lr=0.2) == pytest.approx(fedavg_ratio(steps, 0.2), rel=1e-12)
    last = [0.0] * (steps - 1) + [1.0]
    assert gradient_coefficients([1.0] * steps, 0.2, sent=last).ratio == pytest.approx(fomaml_ratio(steps, 0.2))


def test_limits_for_many_steps():
    assert fedavg_ratio(math.inf, 0.1) == fomaml_ratio(math.inf, 0.1) == feddecay_ratio(1.0, math.inf, 0.1) == math.inf
    assert feddecay_ratio(0.5, math.inf, 0.3) == pytest.approx(0.5 * 0.3 / 0.75)
    assert feddecay_ratio(0.5, 200, 0.3) == pytest.approx(feddecay_ratio(0.5, math.inf, 0.3), rel=1e-12)
    assert feddecay_ratio(0.0, math.inf, 0.3) == 0.0


def test_erratum_1_in_exact_rationals():
    """Equation 10 as printed lacks lr * beta; with it, the general sum comes out exactly."""
    beta, lr, steps = Fraction(2, 3), Fraction(1, 7), 6
    powers = [beta**j for j in range(steps)]
    general = lr * sum(powers[j] * sum(powers[:j], Fraction(0)) for j in range(steps))
    printed = (1 - beta ** (steps - 1)) * (1 - beta**steps) / ((1 + beta) * (1 - beta) ** 2)
    assert printed != general
    assert lr * beta * printed == general
    assert feddecay_coefficients(2 / 3, 6, 1 / 7).avg_grad_inner == pytest.approx(float(general), rel=1e-12)


def test_closed_form_is_accurate_next_to_one():
    beta = 1 - 1e-12
    assert feddecay_ratio(beta, 10, 0.1) == pytest.approx(fedavg_ratio(10, 0.1), rel=1e-3)


def test_ratio_of_any_schedule_in_any_round():
    lr = per_round(0.1, 0.5) * per_step(1.0, 0.6)
    assert schedule_ratio(lr, steps=5) == pytest.approx(feddecay_ratio(0.6, 5, 0.1))
    assert schedule_ratio(lr, steps=5, round=3) == pytest.approx(feddecay_ratio(0.6, 5, 0.1 / 8))
    assert schedule_ratio(0.1, steps=5) == schedule_ratio(constant(0.1), steps=5) == pytest.approx(0.2)
    assert schedule_ratio(linear_in_round(0.5, 0.0), steps=5) == 0.0
    assert schedule_ratio(inverse_time(1, 2) * sequence([2.0, 1.0, 3.0]), 3, round=0) == pytest.approx(5.5 / 6)


def test_schedules_that_count_epochs():
    """Two batches per epoch, beta = 1/2 per epoch: rates 1, 1, 1/2, 1/2; sum b B = 0 + 1 + 1 + 1.25 over B(4) = 3."""
    lr = per_step(1.0, 0.5, per="epoch")
    assert within_round(lr, 4, batches_per_epoch=2) == [1.0, 1.0, 0.5, 0.5]
    assert schedule_ratio(lr, 4, batches_per_epoch=2) == pytest.approx(3.25 / 3)
    assert lr.at(Now(epoch=1)) == 0.5


@pytest.mark.parametrize("beta", [0.01, 0.3, 0.77, 0.99])
def test_beta_for_ratio_inverts(beta):
    assert beta_for_ratio(feddecay_ratio(beta, 7, 0.2), 7, 0.2) == pytest.approx(beta, rel=1e-9)


def test_beta_for_ratio_at_the_ends():
    assert beta_for_ratio(0.0, 7, 0.2) == pytest.approx(0.0, abs=1e-12)
    assert beta_for_ratio(fedavg_ratio(7, 0.2), 7, 0.2) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: personalization_ratio([], 0.1), "factors must be one or more finite numbers"),
        (lambda: personalization_ratio([0.0, 0.0], 0.1), "factors must be of positive sum"),
        (lambda: personalization_ratio([1.0], -1), r"lr must be a number >= 0. Got -1"),
        (lambda: gradient_coefficients([1.0, 1.0], 0.1, sent=[1.0]), "sent must be as long as factors"),
        (lambda: feddecay_ratio(1.5, 3, 0.1), r"beta must be a number in \[0, 1\]. Got 1.5"),
        (lambda: fedavg_ratio(0, 0.1), "steps must be an int >= 1 or math.inf. Got 0"),
        (lambda: beta_for_ratio(1.0, 3, 0.1), r"ratio must be a number in \[0, 0.1\]"),
        (lambda: beta_for_ratio(0.0, 1, 0.1), "steps > 1"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
