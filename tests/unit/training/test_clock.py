"""Who arrives in time, when a round ends, and what it costs: numbers worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedtempo import devices
from fedtempo.devices import RunningDevices
from fedtempo.devices.running import Work
from fedtempo.devices.traits import HOUR
from fedtempo.schedules import Now
from fedtempo.training.clock import AWAY, LATE, LEFT, Participants, passage, waiting
from fedtempo.training.loop import drained, train_experiment
from fedtempo.training.round_report import RoundReport
from tests.one_weight import experiment

CLIENTS = np.array([3, 5, 8])
ALWAYS = RunningDevices(devices.constant(), 0, 1, 1)


def work(*steps: float) -> Work:
    """One second down, so many seconds and joules of steps, one second and ten joules up."""
    ones, of = np.ones(len(steps)), np.array(steps)
    return Work((ones, of, ones), (np.zeros(len(steps)), of, 10 * ones))


def passed(
    *steps: float, deadline: float | None = None, enough: int | None = None, silent: bool = False
) -> Participants:
    return passage(ALWAYS, work(*steps), CLIENTS[: len(steps)], Now(), deadline, enough, silent)


def test_a_round_takes_as_long_as_its_slowest_client() -> None:
    found = passed(4.0, 9.0, 2.0)
    assert (found.clients.tolist(), found.failures, found.seconds) == ([3, 5, 8], [], 11.0)
    assert found.joules == 15.0 + 30.0


def test_the_deadline_ends_it() -> None:
    found = passed(4.0, 9.0, 2.0, deadline=7.0)
    assert found.clients.tolist() == [3, 8] and found.failures == [(5, LATE)] and found.seconds == 7.0
    assert found.also_charged.tolist() == [5]
    assert found.joules == 6.0 + 20.0 + 6.0  # the late one has taken six of its nine steps
    assert passed(4.0, 5.0, deadline=7.0).seconds == 7.0 and not passed(4.0, 5.0, deadline=7.0).failures
    assert passed(4.0, deadline=50.0).seconds == 6.0
    assert passed(4.0, deadline=50.0, silent=True).seconds == 50.0  # one that never answers is waited for


def test_enough_is_enough() -> None:
    found = passed(4.0, 9.0, 2.0, enough=2)
    assert found.clients.tolist() == [3, 8] and found.seconds == 6.0 and not found.failures
    assert found.joules == 6.0 + 20.0 + 5.0  # the third stops when the round ends
    assert passed(4.0, 4.0, 4.0, enough=2).clients.tolist() == [3, 5]  # equal times: the lower number
    assert passed(4.0, enough=2).seconds == 6.0


def test_a_client_that_leaves_is_not_counted() -> None:
    closing = RunningDevices(devices.constant().available(hours=(0, 1)), 0, 1, 1)
    found = passage(closing, work(4.0, 20.0), CLIENTS[:2], Now(time=HOUR - 10.0), None, None, False)
    assert found.clients.tolist() == [3] and found.failures == [(5, LEFT)]
    assert found.seconds == pytest.approx(10.0) and found.joules == pytest.approx(14.0 + 9.0)


def test_the_server_waits_for_somebody() -> None:
    fleet = RunningDevices(devices.constant().available(hours=(6, 18)), 0, 1, 1)
    assert waiting(fleet, CLIENTS, 7 * HOUR, 3) == 0.0
    assert waiting(fleet, CLIENTS, 20 * HOUR, 1) == pytest.approx(10 * HOUR)


def test_waiting_for_many_looks_only_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients join one by one; the server looks when enough can be there, not at every one that comes."""
    fleet = RunningDevices(devices.constant().available(joins=1e6), 0, 1, 1)
    clients, looks = np.arange(1000), []
    real = RunningDevices.waits
    monkeypatch.setattr(RunningDevices, "waits", lambda *given: looks.append(given) or real(*given))
    waited = waiting(fleet, clients, 0.0, 500)
    assert np.count_nonzero(fleet.available(clients, waited)) == 500 and len(looks) <= 3


def test_clients_that_are_never_there_together() -> None:
    """A quorum that no hour of the day has: the server does not wait for it, but until somebody is there."""
    opens = np.array([6.0, 12.0])
    by_hand = devices.as_devices(lambda seed, clients: {"opens": opens[clients], "closes": opens[clients] + 1})
    assert by_hand is not None
    fleet = RunningDevices(by_hand, 0, 1, 1)
    assert waiting(fleet, np.array([0, 1]), 7.5 * HOUR, 2) == pytest.approx(4.5 * HOUR)


ROWS = ([1.0], [2.0], [3.0], [4.0])


def by_number(seed: int, clients: np.ndarray) -> dict[str, np.ndarray]:
    """Client 0 takes one second a step, client 1 two, and so on; clients 2 and 3 are there from noon on."""
    return {"seconds_per_step": 1.0 + clients, "opens": np.where(clients > 1, 12.0, 0.0), "joules_per_step": clients}


def history(**settings: Any) -> list[RoundReport]:
    return drained(train_experiment(experiment(*ROWS, devices=by_number, **settings))).history


def test_time_by_hand() -> None:
    (first, second) = history(cohorts=[[0, 1], [0, 2]], rounds=2)
    assert (first.time, first.energy, first.total_time) == (2.0, 1.0, 2.0)
    assert second.clients == (0,) and second.failures == ((2, AWAY),) and second.total_time == 3.0


def test_over_selection_takes_the_first_to_arrive() -> None:
    (report,) = history(cohort=1, over_selection=1.0)
    assert tuple(report.clients) == (0,) and report.time == 1.0


def test_the_server_waits_for_its_quorum() -> None:
    (report,) = history(quorum=3)
    assert len(report.clients) == 4 and report.time == pytest.approx(12 * HOUR + 4.0)
