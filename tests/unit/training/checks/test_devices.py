"""What is refused before an asynchronous run, or one with devices, begins; and what schedules need to know."""

from __future__ import annotations

from typing import Any

import pytest

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.contracts import small_data
from fedtempo.errors import ConfigError
from fedtempo.schedules import by_own_loss, finish_by, per_round
from fedtempo.training.loop import train_experiment
from tests.one_weight import experiment

ROWS = ([1.0, 2.0], [2.0], [3.0])
FLEET = ft.devices.constant(seconds_per_step=1.0)
BUFF = ft.asynchrony.fedbuff(2)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"asynchrony": "fedbuff", "devices": FLEET}, "asynchrony"),
        ({"asynchrony": BUFF, "devices": FLEET, "algorithm": a.scaffold(lr=0.1, steps=1)}, "algorithm"),
        ({"asynchrony": BUFF, "devices": FLEET, "algorithm": a.feddyn(lr=0.1, steps=1)}, "algorithm"),
        ({"asynchrony": BUFF, "devices": FLEET, "algorithm": a.fedexp(lr=0.1, steps=1)}, "algorithm"),
        ({"asynchrony": BUFF, "devices": FLEET, "algorithm": a.local_only(lr=0.1, steps=1)}, "algorithm"),
        ({"asynchrony": BUFF, "devices": FLEET, "aggregator": ft.robust.median()}, "aggregator"),
        ({"asynchrony": BUFF, "devices": FLEET, "quorum": 2}, "quorum"),
        ({"asynchrony": BUFF, "devices": FLEET, "over_selection": 0.5}, "over_selection"),
        ({"asynchrony": ft.asynchrony.fedbuff(1, events=[("start", 9), ("finish", 9)])}, "events"),
        ({"asynchrony": ft.asynchrony.fedbuff(2, events=[("start", 1), ("finish", 1)])}, "rounds"),
        ({"devices": 3}, "devices"),
        ({"devices": FLEET, "aggregator": ft.robust.private_mean(bound=1.0, noise=1.0)}, "devices"),
        ({"partial_work": True, "deadline": 3.0}, "partial_work"),
        ({"partial_work": True, "devices": FLEET}, "partial_work"),
        ({"partial_work": 1, "devices": FLEET, "deadline": 3.0}, "partial_work"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        experiment(*ROWS, **settings)


def test_a_simulation_needs_devices_or_events_to_be_asynchronous() -> None:
    with pytest.raises(ConfigError, match="asynchrony must be given with devices"):
        next(train_experiment(experiment(*ROWS, asynchrony=BUFF)))


def seen(**settings: Any) -> tuple[bool, bool]:
    problem = experiment(*ROWS, **settings).federation.problem
    return problem.sees_clients, problem.keeps_loss


def test_what_schedules_need_to_know() -> None:
    assert seen() == (False, False)
    assert seen(algorithm=a.fedavg(lr=per_round(0.1, 0.9), steps=1)) == (False, False)
    assert seen(algorithm=a.fedavg(lr=0.1, steps=finish_by(3.0)), devices=FLEET) == (True, False)
    assert seen(algorithm=a.fedavg(lr=by_own_loss(0.1), steps=1)) == (True, True)
    assert seen(algorithm=a.fedavg(lr=lambda now: 0.1 if now.round < 9 else now.last_loss, steps=1)) == (True, True)
    assert seen(algorithm=a.fedavg(lr=lambda now: 0.1 / now.seconds_per_step, steps=1), devices=FLEET) == (True, False)


def test_a_run_with_devices_is_another_run_to_resume() -> None:
    plain, timed, other = (
        experiment(*ROWS, **settings).identity()
        for settings in ({}, {"devices": FLEET}, {"devices": ft.devices.constant(seconds_per_step=2.0)})
    )
    assert "devices" not in plain and timed["devices"] != other["devices"]
    assert timed["devices (content)"] != other["devices (content)"]


@pytest.mark.parametrize(
    "algorithm", [ft.algorithms.feddecay(0.1, 0.5, epochs=2, per="epoch_displacement"), ft.algorithms.pfedme()]
)
def test_a_deadline_does_not_end_clients_inside_steps_that_belong_together(algorithm: ft.Algorithm) -> None:
    settings = {"model": ft.models.mlp(6, [5], 4), "data": small_data(), "rounds": 1, "cohort": 4, "batch_size": 4}
    clock = {"devices": ft.devices.constant(seconds_per_step=1.0), "deadline": 2.5}
    with pytest.raises(ft.ConfigError, match=r"partial_work must be false for .*steps belong together"):
        ft.train(algorithm=algorithm, **settings, **clock, partial_work=True)
    assert ft.train(algorithm=algorithm, **settings, **clock)
