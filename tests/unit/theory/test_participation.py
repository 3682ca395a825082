"""PFLEGO's Proposition 2: its bound on sampled gradients by enumeration, and its rates."""

from itertools import combinations

import numpy as np
import pytest

from fedtempo.errors import ConfigError
from fedtempo.theory import best_lr, gradient_bound, gradient_growth, proposed_lr

SHARES = [0.4, 0.3, 0.2, 0.1]


def second_moment(gradients: np.ndarray, cohort: int) -> float:
    """E||(I / r) sum_S a_i g_i||^2 over all cohorts of this size."""
    count = len(gradients)
    sums = [
        count / cohort * sum(SHARES[i] * gradients[i] for i in chosen) for chosen in combinations(range(count), cohort)
    ]
    return float(np.mean([s @ s for s in sums]))


@pytest.mark.parametrize("cohort", [1, 2, 3, 4])
def test_growth_bounds_the_sampled_gradient(cohort: int) -> None:
    random = np.random.default_rng(cohort)
    for _ in range(50):
        gradients = random.normal(size=(4, 3))
        largest = np.linalg.norm(gradients, axis=1).max()
        assert second_moment(gradients, cohort) <= largest**2 * gradient_growth(SHARES, cohort) + 1e-12
    equal = np.tile(random.normal(size=3), (4, 1))
    if cohort in (1, 4):
        assert second_moment(equal, cohort) <= float(equal[0] @ equal[0]) * gradient_growth(SHARES, cohort) + 1e-12


def test_everybody_is_no_sampling() -> None:
    assert gradient_growth(SHARES, 4) == pytest.approx(1.0)
    assert gradient_growth(SHARES, 1) > gradient_growth(SHARES, 2) > 1


def test_erratum_13_the_proposed_rate_gets_worse_with_more_clients() -> None:
    """With everybody present the bound at rho = sqrt(I / T) / L grows like sqrt(I); at the best rate it does not."""
    proposed, best = [], []
    for count in (4, 16, 64):
        shares, rounds = [1 / count] * count, 10_000
        common = (1.0, 1.0, 1.0, shares, count, rounds)
        proposed.append(gradient_bound(*common, proposed_lr(1.0, count, rounds)))
        best.append(gradient_bound(*common, best_lr(*common)))
    assert proposed[2] / proposed[1] == pytest.approx(2, rel=0.1)
    assert best == pytest.approx([best[0]] * 3)
    assert all(b <= p for b, p in zip(best, proposed, strict=True))


def test_the_bound_holds_for_gradient_descent() -> None:
    """L(theta) = theta^2 / 2 from theta = 1: the mean of the squared gradients is below the bound."""
    theta, rate, squares = 1.0, 0.2, []
    for _ in range(30):
        squares.append(theta**2)
        theta -= rate * theta
    assert np.mean(squares) <= gradient_bound(0.5, 1.0, 1.0, SHARES, 4, 30, rate)


def test_wrong_input_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cohort must be a number in \(0, 4\]. Got 5"):
        gradient_growth(SHARES, 5)
