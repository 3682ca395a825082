"""FedDecay's convergence bound: the repaired constants, its recursion, and simulations on heterogeneous quadratics."""

from itertools import combinations

import numpy as np
import pytest

from fedtempo.errors import ConfigError
from fedtempo.schedules import Now
from fedtempo.theory import (
    StronglyConvex,
    convergence_bound,
    convergent_lr,
    local_noise,
    participation_noise,
    rate_constants,
)

CLIENTS, SIZE = 6, 3


def quadratics(seed):
    """F_i = (x - c_i)^T A_i (x - c_i) / 2 with eigenvalues in [0.5, 2]; F_i* = 0, hence Gamma = F*."""
    random = np.random.default_rng(seed)
    rotations = np.linalg.qr(random.standard_normal((CLIENTS, SIZE, SIZE)))[0]
    eigenvalues = random.uniform(0.5, 2.0, (CLIENTS, SIZE))
    hessians = np.einsum("iab,ib,icb->iac", rotations, eigenvalues, rotations)
    centres = random.standard_normal((CLIENTS, SIZE))
    best = np.linalg.solve(hessians.mean(0), np.einsum("iab,ib->a", hessians, centres) / CLIENTS)
    return hessians, centres, best


def mean_loss(hessians, centres, point):
    offsets = point - centres
    return float(np.einsum("ia,iab,ib->", offsets, hessians, offsets)) / (2 * CLIENTS)


def simulate(problem, schedule, *, steps, rounds, cohort, noise, seed):
    """FedDecay by hand from x_0 = 3: losses after every round, and the largest gradient norm on the way."""
    hessians, centres, _ = problem
    random = np.random.default_rng(seed)
    point, losses, largest = np.full(SIZE, 3.0), [], 0.0
    losses.append(mean_loss(hessians, centres, point))
    for n in range(rounds):
        chosen = random.permutation(CLIENTS)[:cohort]
        local = np.repeat(point[None], cohort, axis=0)
        for k in range(steps):
            gradients = np.einsum("iab,ib->ia", hessians[chosen], local - centres[chosen])
            largest = max(largest, float(np.linalg.norm(gradients, axis=1).max()))
            noisy = gradients + noise / np.sqrt(SIZE) * random.standard_normal(gradients.shape)
            local = local - schedule.at(Now(round=n, step=k)) * noisy
        point = local.mean(0)
        losses.append(mean_loss(hessians, centres, point))
    return np.array(losses), largest


@pytest.mark.parametrize("factors", [[1.0], [1.0, 0.5, 0.25], [1.0, 1.0, 1.0], [2.0, 1.8]])
@pytest.mark.parametrize(("cohort", "noise"), [(CLIENTS, 0.0), (CLIENTS, 1.0), (2, 0.0), (2, 1.0)])
def test_bound_holds_in_simulation(factors, cohort, noise):
    hessians, centres, best = problem = quadratics(0)
    eigenvalues = np.linalg.eigvalsh(hessians)
    mu, smooth = float(eigenvalues.min()), float(eigenvalues.max())
    schedule = convergent_lr(factors, mu, smooth)
    runs = 1 if cohort == CLIENTS and not noise else 40
    results = [
        simulate(problem, schedule, steps=len(factors), rounds=60, cohort=cohort, noise=noise, seed=s)
        for s in range(runs)
    ]
    optimum = mean_loss(hessians, centres, best)
    gaps = np.mean([losses for losses, _ in results], axis=0) - optimum
    largest = max(bound for _, bound in results)
    facts = StronglyConvex(mu, smooth, (largest**2 + noise**2) ** 0.5, optimum, noise**2 / CLIENTS)
    distance = float(np.linalg.norm(np.full(SIZE, 3.0) - best))
    for rounds, gap in enumerate(gaps):
        assert gap <= convergence_bound(
            facts, factors, rounds=rounds, distance=distance, clients=CLIENTS, cohort=cohort
        )
    assert gaps[60] < 0.2 * gaps[0]


def test_constants_by_hand():
    """mu = 2, L = 4, b = (1, 1/2): c = 3/(2/2) = 3, d = max(12 * 2 / 0.5, 3) = 48; with K = 1: c = 1.5, d = 24."""
    assert rate_constants([1.0, 0.5], 2.0, 4.0) == (3.0, 48.0)
    assert rate_constants([1.0], 2.0, 4.0) == (1.5, 24.0)
    facts = StronglyConvex(2.0, 4.0, gradient_bound=3.0, gamma=0.5, weighted_variance=0.25)
    assert local_noise(facts, [1.0, 0.5]) == 0.25 + 6 * 4 * 0.5 + 2 * (3 * 1 * 2) ** 2
    assert participation_noise(facts, [1.0, 0.5], clients=5, cohort=2) == pytest.approx(3 / 8 * (3 * 2 * 2) ** 2)
    assert participation_noise(facts, [1.0, 0.5], clients=5, cohort=5) == 0.0
    inner = 9 * 84.25 * 4 / (2 * 2) + 2 * (48 - 2 + 0.5) / 2 * 4
    bound = convergence_bound(facts, [1.0, 0.5], rounds=4, distance=2.0)
    assert bound == pytest.approx(2 / (4 + 46) * inner)


def test_schedule_is_inverse_time_times_the_sequence():
    schedule = convergent_lr([1.0, 0.5], 2.0, 4.0)
    assert schedule.at(Now(round=0, step=0)) == 3 / 48
    assert schedule.at(Now(round=2, step=1)) == pytest.approx(3 / 50 / 2)
    assert schedule.at(Now(round=0, step=0)) <= 1 / (4 * 4.0) + 1e-12


@pytest.mark.parametrize("first", [0.3, 1.0, 5.0])
def test_first_step_is_never_longer_than_a_quarter_of_one_over_l(first):
    """The theorem needs eta <= 1/(4L). With d as printed, b_0 = 5 would give steps five times as long."""
    factors = [first, first / 2]
    lr = convergent_lr(factors, 0.7, 3.0).at(Now())
    assert lr == pytest.approx(1 / (4 * 3.0))
    printed_d = 12 * (3.0 / 0.7) / factors[-1]
    printed = 3 / (0.7 * factors[-1]) / printed_d * first
    assert (printed > 1 / 12 + 1e-12) == (first > 1)


def test_scaling_the_sequence_changes_nothing():
    facts = StronglyConvex(0.5, 2.0, 3.0, 0.2)
    bounds = [
        convergence_bound(facts, [s, s / 2, s / 4], rounds=9, distance=1.0, clients=8, cohort=2) for s in (1, 4, 0.1)
    ]
    assert bounds == pytest.approx([bounds[0]] * 3)
    lrs = [convergent_lr([s, s / 2, s / 4], 0.5, 2.0).at(Now(round=3, step=1)) for s in (1, 4, 0.1)]
    assert lrs == pytest.approx([lrs[0]] * 3)


def test_trailing_zeros_count_as_fewer_steps():
    facts = StronglyConvex(0.5, 2.0, 3.0, 0.2)
    short = convergence_bound(facts, [1.0], rounds=9, distance=1.0)
    assert convergence_bound(facts, [1.0, 0.0, 0.0], rounds=9, distance=1.0) == short
    schedule = convergent_lr([1.0, 0.0], 0.5, 2.0)
    assert schedule.at(Now(step=0)) > 0
    assert schedule.at(Now(step=1)) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_the_induction_of_the_repaired_proof(seed):
    """Errata 3 to 5: Delta <- (1 - mu eta) Delta + eta^2 B at equality stays below v / (t/K + d - 2)."""
    random = np.random.default_rng(seed)
    steps = int(random.integers(1, 6))
    factors = np.sort(random.uniform(0.2, 1.0, steps))[::-1] / 1.0
    factors = (factors / factors[0]).tolist()
    mu = float(random.uniform(0.1, 3.0))
    smooth, noise = mu * float(random.uniform(1.0, 5.0)), float(random.uniform(0.0, 20.0))
    c, d = rate_constants(factors, mu, smooth)
    schedule = convergent_lr(factors, mu, smooth)
    delta = start = float(random.uniform(0.0, 4.0))
    v = max(c**2 * noise, (d - 2 + 1 / steps) * start)
    for t in range(200 * steps):
        assert delta <= v / (t / steps + d - 2) * (1 + 1e-12)
        eta = schedule.at(Now(round=t // steps, step=t % steps))
        delta = (1 - mu * eta) * delta + eta**2 * noise


def test_erratum_3_the_contraction_needs_mu():
    """One client, F = x^2 / 20 (mu = L = 0.1), eta = 1: the squared distance shrinks by 0.81, not by 1 - eta = 0."""
    mu, eta = 0.1, 1.0
    shrunk = (1 - eta * mu) ** 2
    assert 1 - eta < shrunk <= 1 - mu * eta


def test_erratum_5_the_printed_c_is_not_positive_for_small_mu():
    mu, last = 1.0, 0.5
    assert 3 / (mu * last - 2) < 0 < rate_constants([1.0, last], mu, mu)[0]


@pytest.mark.parametrize("cohort", [1, 2, 5, 6])
def test_erratum_6_variance_of_a_cohort_mean(cohort):
    """Over all cohorts: E||mean_S v - mean v||^2 = (M - S) / (S (M - 1)) mean ||v_i - mean v||^2."""
    values = np.random.default_rng(3).standard_normal((CLIENTS, SIZE))
    centre = values.mean(0)
    over_cohorts = np.mean(
        [((values[list(s)].mean(0) - centre) ** 2).sum() for s in combinations(range(CLIENTS), cohort)]
    )
    spread = ((values - centre) ** 2).sum(1).mean()
    assert over_cohorts == pytest.approx((CLIENTS - cohort) / (cohort * (CLIENTS - 1)) * spread, abs=1e-12)


def test_the_distance_term_needs_the_factor_mu():
    """All clients share F = 50 x^2 (mu = L = 100), K = 1, no noise: B = 0, so only the distance term is left.

    From x_0 = 1, one round multiplies x by 3/4: F = 28.125. The printed bound is 11 / (2 * 11) = 0.5; ours 50.
    """
    facts = StronglyConvex(100.0, 100.0, gradient_bound=100.0, gamma=0.0)
    lr = convergent_lr([1.0], 100.0, 100.0).at(Now())
    loss = 50 * (1 - 100 * lr) ** 2
    assert loss == pytest.approx(28.125)
    _, d = rate_constants([1.0], 100.0, 100.0)
    printed = 1 / (1 + d - 2) * (1 + d - 2) / 2
    assert printed == 0.5 < loss <= convergence_bound(facts, [1.0], rounds=1, distance=1.0)
    assert convergence_bound(facts, [1.0], rounds=1, distance=1.0) == pytest.approx(50.0)


def test_bound_falls_like_one_over_n():
    facts = StronglyConvex(0.5, 2.0, 3.0, 0.2)
    near, far = (convergence_bound(facts, [1.0, 0.5], rounds=n, distance=1.0) for n in (10**6, 10**7))
    assert near / far == pytest.approx(10, rel=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: StronglyConvex(0.0, 1.0, 1.0, 0.0), "strong_convexity must be a number > 0"),
        (lambda: StronglyConvex(2.0, 1.0, 1.0, 0.0), "smoothness must be a number >= strong_convexity"),
        (lambda: StronglyConvex(1.0, 1.0, 1.0, -0.1), r"gamma must be a number >= 0. Got -0.1"),
        (lambda: rate_constants([0.5, 1.0], 1.0, 1.0), "factors must be positive and never rising"),
        (lambda: rate_constants([0.0], 1.0, 1.0), "factors must be positive and never rising"),
        (lambda: rate_constants([1.0, -0.5], 1.0, 1.0), "factors must be positive and never rising"),
        (lambda: participation_noise(StronglyConvex(1, 1, 1, 0), [1.0], 3, 4), r"cohort must be an int in \[1, 3\]"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
