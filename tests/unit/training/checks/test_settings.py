"""Checks of settings: every schedule of a phase is tried before training, wherever the phase has it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fedtempo as ft
from fedtempo.client.optimizers import sgd
from fedtempo.contracts import small_data
from fedtempo.training.plan import planned_steps


def prepared(algorithm: ft.Algorithm, **others: Any) -> Any:
    settings = {"model": ft.models.mlp(6, [5], 4), "data": small_data(), "rounds": 3, "cohort": 4, "batch_size": 4}
    return ft.train(algorithm=algorithm, **{**settings, **others}, progress=False)


def raises_later(now: ft.Now) -> float:
    if now.round == 2:
        raise ZeroDivisionError("division by zero")
    return 0.1


def wrong_schedules(schedule: Any) -> dict[str, ft.Algorithm]:
    known = ft.algorithms
    return {
        "lr": known.fedavg(schedule, 2),
        "weight_decay": known.fedavg(0.1, 2, optimizer=sgd(weight_decay=schedule)),
        "max_norm": known.fednar(known.fedavg(0.1, 2), weight_decay=0.1, max_norm=schedule),
        "share": known.fedcm(0.1, 2, alpha=lambda now: 0.5 if now.round == 0 else schedule(now)),
    }


@pytest.mark.parametrize("name", wrong_schedules(lambda now: 1.0))
def test_a_negative_rate_of_a_later_round_is_refused(name: str) -> None:
    algorithm = wrong_schedules(lambda now: 1.0 if now.round == 0 else -1.0)[name]
    with pytest.raises(ft.ConfigError, match=f"{name} must be .* Got -1.0 at round 1"):
        prepared(algorithm)


@pytest.mark.parametrize("name", wrong_schedules(lambda now: 1.0))
def test_a_rate_that_raises_in_a_later_round_is_refused_by_name(name: str) -> None:
    with pytest.raises(ft.ConfigError, match=f"{name} must be a number in every round. Got ZeroDivisionError"):
        prepared(wrong_schedules(raises_later)[name])


def test_a_rate_that_is_negative_for_a_client_is_refused() -> None:
    """Schedules were tried as if every client had one row, and as a client alone for fine-tuning."""
    data = ft.data.FederatedData.from_clients([(torch.ones(n, 6), torch.arange(n) % 4) for n in (*[5] * 9, 6)])
    falls = ft.algorithms.fedavg(lambda now: 0.55 - 0.1 * now.samples, 2)
    with pytest.raises(ft.ConfigError, match=r"lr must be at least 0. Got -0.0\d* at .* for client 9 of 6 rows"):
        prepared(falls, data=data)


@pytest.mark.parametrize("setting", ["evaluation", "algorithm"])
def test_a_rate_that_is_negative_for_a_new_user_is_refused(setting: str) -> None:
    """With it their fine-tuning went uphill."""
    data = ft.data.FederatedData.from_clients([(torch.ones(6, 6), torch.arange(6) % 4)] * 10, new_clients=2)
    new = set(data.held_out.tolist())

    def lr(now: ft.Now) -> float:
        return -0.1 if now.client in new else 0.1

    algorithm = ft.algorithms.fedavg(lr if setting == "algorithm" else 0.1, 2)
    evaluation = ft.Evaluation(lr=lr if setting == "evaluation" else None)
    with pytest.raises(ft.ConfigError, match=r"evaluation: lr must be at least 0. Got -0.1 at .* for client"):
        prepared(algorithm, data=data, evaluation=evaluation)


def test_a_schedule_that_returns_a_text_is_refused() -> None:
    """A text of a number was read as the number, which a setting is not."""
    with pytest.raises(ft.ConfigError, match=r"lr must be a number .*a text, '0.1'"):
        prepared(ft.algorithms.fedavg(lambda now: "0.1", 2))  # type: ignore[arg-type,return-value]
    with pytest.raises(ft.ConfigError, match=r"cohort must be a number, .*a text, '2'"):
        prepared(ft.algorithms.fedavg(0.1, 2), cohort=lambda now: "2")


def test_the_plan_shows_every_rate() -> None:
    algorithm = ft.algorithms.fedcm(0.1, 1, alpha=0.3, optimizer=sgd(weight_decay=0.2))
    (step,) = planned_steps(algorithm, [0], 8, ft.data.batches.Batching(4), ft.Now())
    assert step.rates == {"lr": 0.1, "share": 0.3, "weight_decay": 0.2}


class Falling:
    """A scheduler as torch's are: it remembers the last round that it was asked for, and falls at a new one."""

    def __init__(self) -> None:
        self.rate, self.seen = 0.1, 0

    def __call__(self, now: ft.Now) -> float:
        if now.round != self.seen:
            self.rate, self.seen = 0.9 * self.rate, now.round
        return self.rate


def counting() -> Any:
    calls: list[int] = []
    return lambda now: calls.append(1) or 0.1 / len(calls)


@pytest.mark.parametrize("make", [Falling, counting])
@pytest.mark.parametrize("name", wrong_schedules(lambda now: 1.0))
def test_a_schedule_that_remembers_is_refused(name: str, make: Any) -> None:
    with pytest.raises(ft.ConfigError, match=f"{name} must be the same number whenever it is asked"):
        prepared(wrong_schedules(make())[name])


def test_a_number_of_steps_that_is_remembered_is_refused() -> None:
    left = iter(range(1_000_000))
    with pytest.raises(ft.ConfigError, match="steps must be the same number whenever it is asked"):
        prepared(ft.algorithms.fedavg(0.1, lambda now: 1 + next(left)))


def whole(rate: Any, factor: int) -> Any:
    """A number of clients, steps or epochs that follows a rate."""
    return lambda now: 1 + round(factor * rate(now))


@pytest.mark.parametrize("make", [Falling, counting])
def test_a_cohort_that_remembers_is_refused(make: Any) -> None:
    with pytest.raises(ft.ConfigError, match="cohort must be the same number whenever it is asked"):
        prepared(ft.algorithms.fedavg(0.1, 2), cohort=whole(make(), 20))
    prepared(ft.algorithms.fedavg(0.1, 2), cohort=lambda now: 1 + now.round)


def test_a_rule_that_remembers_rounds_chooses_no_cohort() -> None:
    seen: list[int] = []

    def choose(clients: Any, now: ft.Now, seed: int, over: float = 0.0) -> Any:
        seen.extend({now.round} - set(seen))
        return clients[: len(seen)]

    growing = ft.cohort.Cohort("growing", lambda now, clients: 2.0, choose)
    with pytest.raises(ft.ConfigError, match="what the cohort 'growing' chooses must be the same clients"):
        prepared(ft.algorithms.fedavg(0.1, 2), cohort=growing)


@pytest.mark.parametrize("make", [Falling, counting])
@pytest.mark.parametrize("field", ["lr", "steps", "epochs"])
def test_fine_tuning_by_what_remembers_is_refused(field: str, make: Any) -> None:
    rate = make() if field == "lr" else whole(make(), 5000)
    with pytest.raises(ft.ConfigError, match=f"evaluation: {field} must be the same number whenever it is asked"):
        prepared(ft.algorithms.fedavg(0.1, 2), evaluation=ft.Evaluation(every=1, **{field: rate}))


def test_fine_tuning_is_asked_in_every_round_that_is_scored() -> None:
    """A rate that fails in a later round is named before training; rounds without scores may have none."""
    known = {1: 0.1, 3: 0.2}
    plain = ft.algorithms.fedavg(0.1, 2)
    prepared(plain, rounds=4, evaluation=ft.Evaluation(every=2, lr=lambda now: known[now.round]))
    with pytest.raises(ft.ConfigError, match="evaluation: lr must be a number in every round"):
        prepared(plain, rounds=6, evaluation=ft.Evaluation(every=2, lr=lambda now: known[now.round]))


class Headless(torch.nn.Linear):
    """A model without a part that is called head."""


@pytest.mark.parametrize("part", ["head", "body"])
def test_parts_that_the_model_does_not_have_are_not_fine_tuned(part: Any) -> None:
    """Without a head, all but the head was all of the model, without a word."""
    with pytest.raises(ft.ConfigError, match="evaluation"):
        prepared(ft.algorithms.fedavg(0.1, 2), model=Headless(6, 4), evaluation=ft.Evaluation(trains=part))


@pytest.mark.parametrize("protocol", [{"every": 1}, False, 5])
def test_a_protocol_that_is_none_is_named(protocol: Any) -> None:
    settings = {"model": ft.models.mlp(6, [5], 4), "data": small_data(), "rounds": 1}
    with pytest.raises(ft.ConfigError, match=r"evaluation must be an ft\.Evaluation, such as .* or None"):
        ft.train(algorithm=ft.algorithms.fedavg(0.1, 1), **settings, evaluation=protocol)
