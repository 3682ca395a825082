"""Asynchronous runs: who is refused, who is lost, and when a run gives up. The models are in tests/numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.errors import TrainingError
from fedtempo.training.asynchronous.rounds import STALE
from fedtempo.training.clock import LATE, LEFT
from fedtempo.training.loop import drained, train_experiment
from fedtempo.training.result import Result
from tests.one_weight import OneWeight, experiment

ROWS = ([1.0], [2.0], [3.0], [4.0], [5.0])


def by_number(seed: int, clients: np.ndarray) -> dict[str, np.ndarray]:
    """Client 0 takes one second a step, client 1 two, and so on."""
    return {"seconds_per_step": 1.0 + clients}


def run(**settings: Any) -> Result:
    usual = {"devices": by_number, "asynchrony": ft.asynchrony.fedbuff(2), "rounds": 4, "cohort": 1.0}
    return drained(train_experiment(experiment(*ROWS, **{**usual, **settings})))


def test_arrivals_by_hand() -> None:
    # Everybody is at work; whoever arrives starts again. Client 0 arrives at 1, 2, 3, ..., client 1 at 2, 4, ...
    # At equal times the lower number comes first.
    first, second, third, *_ = run().history
    assert (tuple(first.clients), first.total_time) == ((0, 0), 2.0)  # 0 at 1, 0 again at 2
    assert (tuple(second.clients), second.total_time) == ((0, 1), 3.0)  # 1 at 2, 0 at 3
    assert (tuple(third.clients), third.total_time) == ((0, 2), 4.0)  # 2 at 3, 0 at 4
    staleness = [report.measurements["staleness"] for report in (first, second, third)]
    assert staleness == [0.0, 0.5, 1.0]  # 1 started from version 0, one version ago; 2 two versions ago


def test_too_stale_late_and_gone() -> None:
    result = run(asynchrony=ft.asynchrony.fedbuff(1, max_staleness=0), rounds=6)
    assert STALE in {failure.reason for report in result.history for failure in report.failures}
    assert all(report.measurements["max_staleness"] == 0 for report in result.history)
    result = run(deadline=3.0)
    assert LATE in {failure.reason for report in result.history for failure in report.failures}
    assert all(client < 3 for report in result.history for client in report.clients)
    leaving = ft.devices.as_devices(by_number).available(stays=2.0)  # type: ignore[union-attr]
    assert LEFT in {failure.reason for report in run(devices=leaving).history for failure in report.failures}


def test_whoever_is_late_or_stale_is_charged_as_in_a_round() -> None:
    """Costs count what was done; of clients that left, energy alone is counted."""
    for rule in ({"deadline": 3.0}, {"asynchrony": ft.asynchrony.fedbuff(1, max_staleness=0), "rounds": 6}):
        result = run(**rule)
        reasons = [failure.reason for report in result.history for failure in report.failures]
        assert reasons and set(reasons) <= {LATE, STALE}
        assert result.costs.steps == sum(len(report.clients) for report in result.history) + len(reasons)
    leaving = ft.devices.as_devices(by_number).available(stays=2.0)  # type: ignore[union-attr]
    left = run(devices=leaving)
    assert left.costs.steps == sum(len(report.clients) for report in left.history)


def test_a_schedule_that_looks_at_the_loss_is_charged_for_what_it_said() -> None:
    """Late clients have a loss of their own too, and the ledger asks the schedule with it."""
    algorithm = ft.algorithms.fedavg(lr=0.01, steps=lambda now: 1 if now.last_loss == 0 else 3)
    result = run(algorithm=algorithm, asynchrony=ft.asynchrony.fedbuff(1, max_staleness=0), rounds=8)
    counted: set[int] = set()
    for report in result.history:
        stale = [failure.client for failure in report.failures]
        steps = [3 if client in counted else 1 for client in [*stale, *report.clients]]
        assert report.costs.steps == sum(steps)
        counted |= set(report.clients)
    assert any(failure.client in counted for report in result.history for failure in report.failures)


def test_nobody_is_waited_for_in_vain() -> None:
    """Clients that a list names may be away: the clock goes on until they are there."""

    def hours(seed: int, clients: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "seconds_per_step": np.ones(len(clients)),
            "opens": 12.0 * (clients > 2),
            "closes": 12.0 + (clients > 2),
        }

    rule = {"devices": hours, "asynchrony": ft.asynchrony.fedbuff(1), "cohorts": [[3], [1]], "rounds": 2}
    first, second = run(**rule).history
    assert (tuple(first.clients), first.time) == ((3,), pytest.approx(12 * 3600 + 1.0))
    assert tuple(second.clients) == (1,) and second.total_time == pytest.approx(24 * 3600 + 1.0)


def test_a_cohort_by_chance_never_stops_the_clock() -> None:
    for seed in range(4):
        result = run(cohort=ft.cohort.bernoulli(0.2), seed=seed, asynchrony=ft.asynchrony.fedbuff(1))
        assert [len(report.clients) for report in result.history] == [1] * 4


def test_work_that_is_cut_short_is_not_late() -> None:
    result = run(deadline=3.0, partial_work=True, algorithm=ft.algorithms.fedavg(lr=0.1, steps=2))
    assert all(report.costs.steps <= 4 for report in result.history)
    assert {failure.client for report in result.history for failure in report.failures} <= {3, 4}


def test_a_run_whose_uploads_never_count_is_stopped() -> None:
    with pytest.raises(TrainingError, match="too few count"):
        run(faults=ft.Faults(nan=1.0))


def test_refused_uploads_do_not_fill_the_buffer() -> None:
    result = run(faults=ft.Faults(nan=0.5), rounds=5)
    assert all(len(report.clients) == 2 for report in result.history)
    assert any(failure.reason == "not finite" for report in result.history for failure in report.failures)


def test_validation_selects_a_version() -> None:
    rows = [(np.ones((4, 1)), np.full((4, 1), float(c))) for c in range(4)]
    data = ft.data.FederatedData.from_clients(rows, validation=[(x[:1], y[:1]) for x, y in rows])
    result = ft.run(
        model=OneWeight(),
        data=data,
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=1),
        rounds=4,
        devices=by_number,
        asynchrony=ft.asynchrony.fedbuff(2),
        evaluation=ft.Evaluation(every=1),
    )
    assert result.chosen is not None and "clock:" in " ".join(result.notes)
