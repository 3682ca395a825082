"""Schedules that know the client, its device and the clock."""

from __future__ import annotations

import pytest

from fedtempo.errors import ConfigError
from fedtempo.schedules import (
    Now,
    as_schedule,
    by_own_loss,
    cosine,
    finish_by,
    from_config,
    over_time,
    per_round,
    sees_clients,
    to_config,
)


def test_all_finish_together() -> None:
    rule = finish_by(20.0, most=100)
    for speed, transfer in ((0.5, 2.0), (3.0, 1.0), (7.0, 5.9)):
        steps = rule.at(Now(seconds_per_step=speed, transfer=transfer))
        assert 20.0 - speed < transfer + steps * speed <= 20.0
    assert rule.at(Now(seconds_per_step=50.0)) == 1.0  # at least one step
    assert rule.at(Now(seconds_per_step=1e-9)) == 100.0
    assert rule.at(Now()) == 100.0
    assert finish_by(0.3).at(Now(seconds_per_step=0.1)) == 3.0  # 0.3 / 0.1 is 2.9999999999999996


def test_who_may_tell_clients_apart() -> None:
    plain = (per_round(0.1, 0.9), cosine(0.1, 5), over_time(1.0, 0.5, 60.0), as_schedule(3.0) * per_round(1.0, 0.5))
    assert not any(map(sees_clients, plain))
    assert all(map(sees_clients, (finish_by(1.0), by_own_loss(1.0), as_schedule(lambda now: 1.0))))
    assert sees_clients(per_round(0.1, 0.9) * by_own_loss(1.0))


@pytest.mark.parametrize("schedule", [finish_by(5.0, 7), over_time(8.0, 0.5, 60.0), by_own_loss(3.0, 0.5)])
def test_they_go_to_files_and_back(schedule) -> None:
    again, now = from_config(to_config(schedule)), Now(time=30.0, last_loss=0.5, seconds_per_step=1.0)
    assert again == schedule and again.at(now) == schedule.at(now)


def test_partial_work_fits_the_deadline() -> None:
    assert Now(seconds_per_step=1.0).most_steps is None
    assert Now(deadline=5.0).most_steps is None
    assert Now(deadline=5.0, seconds_per_step=2.0, transfer=6.0).most_steps == 0
    assert Now(deadline=0.3, seconds_per_step=0.1).most_steps == 3


def test_a_second_start_from_one_model_draws_other_numbers() -> None:
    assert Now(round=3).path == (3,) and Now(round=3, again=2).path == (3, 2)


@pytest.mark.parametrize(
    "make",
    [lambda: finish_by(0), lambda: finish_by(1.0, 0), lambda: over_time(1.0, 0.5, 0), lambda: by_own_loss(1, 1, 0)],
)
def test_wrong_settings_are_refused(make) -> None:
    with pytest.raises(ConfigError, match="must be"):
        make()
