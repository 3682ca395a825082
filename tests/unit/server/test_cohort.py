"""Who takes part: sizes, randomness by seed and round, and rules that are refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.contracts import small_data
from fedtempo.errors import ConfigError
from fedtempo.schedules import Now, sequence
from fedtempo.server.cohort import Cohort, as_cohort, bernoulli, by_samples, fixed, uniform
from fedtempo.training.prepare import prepare

FEDAVG = ft.algorithms.fedavg(lr=0.1, steps=1)
CLIENTS = np.array([2, 3, 5, 7, 11, 13, 17, 19])


@pytest.mark.parametrize(("size", "expected"), [(3, 3), (1.0, 8), (0.5, 4), (0.01, 1), (8, 8)])
def test_a_number_or_a_fraction_of_the_clients(size: int | float, expected: int) -> None:
    cohort = uniform(size)
    chosen = cohort.choose(CLIENTS, Now(), seed=1)
    assert len(chosen) == expected == cohort.expected(Now(), len(CLIENTS))
    assert sorted(set(chosen.tolist())) == chosen.tolist()
    assert set(chosen.tolist()) <= set(CLIENTS.tolist())


def test_seed_and_round_decide() -> None:
    cohort = uniform(3)
    draws = {(seed, r): tuple(cohort.choose(CLIENTS, Now(round=r), seed)) for seed in range(4) for r in range(8)}
    again = {(seed, r): tuple(cohort.choose(CLIENTS, Now(round=r), seed)) for seed, r in reversed(draws)}
    assert again == draws
    assert len(set(draws.values())) > 20  # 56 cohorts are possible


def test_every_client_is_chosen_equally_often() -> None:
    """4,000 rounds of 2 out of 8: 1,000 times each, give or take four standard deviations of a binomial."""
    cohort = uniform(2)
    chosen = np.concatenate([cohort.choose(CLIENTS, Now(round=r), seed=0) for r in range(4000)])
    counts = [int((chosen == client).sum()) for client in CLIENTS]
    assert np.abs(np.array(counts) - 1000).max() < 4 * np.sqrt(4000 * 0.25 * 0.75)


def test_more_are_asked_than_needed_but_never_more_than_there_are() -> None:
    cohort = uniform(3)
    assert len(cohort.choose(CLIENTS, Now(), seed=0, over=0.5)) == 5  # the ceiling of 4.5
    assert len(cohort.choose(CLIENTS, Now(), seed=0, over=1.0)) == 6
    assert len(cohort.choose(CLIENTS, Now(), seed=0, over=9.0)) == 8
    assert cohort.expected(Now(), 8) == 3.0


def test_a_schedule_of_sizes_is_held_to_the_number_of_clients() -> None:
    cohort = uniform(sequence([2, 8, 9], over="round"))
    assert [len(cohort.choose(CLIENTS, Now(round=r), seed=0)) for r in range(2)] == [2, 8]
    with pytest.raises(ConfigError, match=r"cohort must be an int in \[1, 8\]"):
        cohort.choose(CLIENTS, Now(round=2), seed=0)


def test_one_client_is_drawn_in_proportion_to_its_rows() -> None:
    samples = [10, 30, 0, 60]
    rule = by_samples(1, samples)
    drawn = [int(rule.members(np.arange(4), Now(round=t), seed=1)[0]) for t in range(4000)]
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, [0.1, 0.3, 0.0, 0.6], atol=4 * np.sqrt(0.25 / 4000))


def test_two_clients_by_samples_are_drawn_one_after_the_other() -> None:
    """P({i, j}) = p_i p_j / (1 - p_i) + p_j p_i / (1 - p_j), as in the code of q-FFL."""
    p = np.array([0.1, 0.3, 0.6])
    rule = by_samples(2, [1, 3, 6])
    pairs = [tuple(rule.members(np.arange(3), Now(round=t), seed=2).tolist()) for t in range(4000)]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        expected = p[i] * p[j] * (1 / (1 - p[i]) + 1 / (1 - p[j]))
        assert pairs.count((i, j)) / len(pairs) == pytest.approx(expected, abs=4 * np.sqrt(0.25 / 4000))


def test_by_samples_at_its_ends() -> None:
    assert by_samples(1.0, [1, 2, 3]).members(np.arange(3), Now(), seed=0).tolist() == [0, 1, 2]
    assert by_samples(3, [1, 0, 3]).members(np.arange(3), Now(), seed=0).tolist() == [0, 2], "nobody without rows"
    assert by_samples(1, [0, 4, 5]).members(np.array([0]), Now(), seed=0).tolist() == []
    assert by_samples(2, [1, 2, 3]).expected(Now(), 3) == 2.0
    for samples in ([], [0, 0], [1.5, 2], [-1, 2], "12"):
        with pytest.raises(ft.ConfigError, match="samples must be the number of training rows of every client"):
            by_samples(1, samples)
    with pytest.raises(ft.ConfigError, match="samples must be numbers for clients 0 to 3"):
        by_samples(1, [1, 2]).members(np.arange(4), Now(), seed=0)


def test_bernoulli_draws_each_client_on_its_own() -> None:
    """2,000 rounds of 8 clients at 0.3: the size has mean 2.4 and variance 8 * 0.3 * 0.7 = 1.68."""
    cohort = bernoulli(0.3)
    sizes = np.array([len(cohort.choose(CLIENTS, Now(round=r), seed=0)) for r in range(2000)])
    assert cohort.expected(Now(), 8) == pytest.approx(2.4)
    assert abs(sizes.mean() - 2.4) < 4 * np.sqrt(1.68 / 2000)
    assert sizes.var() == pytest.approx(1.68, rel=0.15)
    assert bernoulli(1.0).choose(CLIENTS, Now(), seed=0).tolist() == CLIENTS.tolist()


def test_written_down_cohorts_come_in_turn() -> None:
    cohort = fixed([[5, 2], (7,)])
    assert [cohort.choose(CLIENTS, Now(round=r), seed=r).tolist() for r in range(3)] == [[2, 5], [7], [2, 5]]
    assert cohort.expected(Now(round=1), 8) == 1.0
    assert as_cohort(3, [[5]]).choose(CLIENTS, Now(), seed=0).tolist() == [5]


@pytest.mark.parametrize(
    ("cohorts", "message"),
    [([[4]], "lists of training clients. Got \\[4\\]"), ([[2, 2]], "name each client once"), ([[]], "one or more")],
)
def test_cohorts_that_cannot_be_meant(cohorts: list[list[int]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fixed(cohorts).choose(CLIENTS, Now(), seed=0)


@pytest.mark.parametrize("rule", [uniform, lambda size: by_samples(size, [1] * 20)])
def test_the_number_of_clients_may_be_a_function_of_the_round(rule: Any) -> None:
    cohort = rule(lambda now: 1 + now.round)
    assert [len(cohort.members(CLIENTS, Now(round=number), seed=0)) for number in range(3)] == [1, 2, 3]


def own(choose: Any) -> Cohort:
    return Cohort("mine", lambda now, clients: 2.0, choose)


def test_a_rule_of_ones_own_and_a_function_of_the_round() -> None:
    assert own(lambda clients, now, seed, over: [11, 3]).members(CLIENTS, Now(), 0).tolist() == [3, 11]
    assert own(lambda clients, now, seed, over: []).members(CLIENTS, Now(), 0).tolist() == []
    assert as_cohort(lambda now: 1 + now.round, None).expected(Now(round=2), 8) == 3.0


@pytest.mark.parametrize("chosen", [[3, 99], [1, 3], [3, 3], [3.5], [[3]]])
def test_a_rule_that_chooses_other_than_the_clients_is_refused(chosen: list[Any]) -> None:
    with pytest.raises(ConfigError, match="what the cohort 'mine' chooses must be an array of different numbers"):
        own(lambda clients, now, seed, over: chosen).members(CLIENTS, Now(), 0)


CALLS = itertools.count()
"""A rule that counts its calls chooses others every time; one that draws chooses the same now and then."""


@pytest.mark.parametrize(
    ("cohort", "message"),
    [
        (own(lambda clients, now, seed, over: clients[[next(CALLS) % 2]]), "the same clients for the same"),
        (own(lambda clients: clients), "must choose by a function of .clients, now, seed, over"),
        (lambda clients, now: clients, "an ft.cohort.Cohort that chooses clients. Got .*TypeError in round 0"),
    ],
)
def test_a_rule_is_tried_before_training(cohort: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(model=ft.models.mlp(6, [], 4), data=small_data(), algorithm=FEDAVG, rounds=1, cohort=cohort)
