"""The beginning of a round: where it stands, who is asked and who answers."""

from __future__ import annotations

import pytest
import torch

import fedtempo as ft
from fedtempo.training.one_round import now_in, participants
from fedtempo.training.state import Progress
from tests.one_weight import OneWeight, clients_of, experiment, first_state, ledger_of

ROWS = [[float(client)] for client in range(10)]
TOO_LARGE = 1.7e308
"""A target at which the gradient overflows."""


def test_of_more_that_were_asked_some_arrive_first() -> None:
    prepared = experiment(*ROWS, cohort=4, over_selection=0.5)
    state = first_state(prepared)
    now = now_in(prepared, state, 3)
    everybody, first = (
        participants(prepared, state, now, ledger_of(prepared), real=real).clients.tolist() for real in (True, False)
    )
    assert (len(everybody), len(first), now.cohort) == (6, 4, 4.0)
    assert set(first) < set(everybody) and first == sorted(first)


def test_who_drops_out_is_a_failure_and_trains_nothing() -> None:
    prepared = experiment(*ROWS, faults=ft.Faults(drop=0.5))
    state = first_state(prepared)
    now = now_in(prepared, state, 0)
    clients, failures, *_ = participants(prepared, state, now, ledger_of(prepared))
    assert sorted([*clients.tolist(), *(failure.client for failure in failures)]) == list(range(10))
    assert {failure.reason for failure in failures} == {"dropped out"}
    assert 0 < len(failures) < 10


def test_now_knows_how_training_is_getting_on() -> None:
    prepared = experiment(*ROWS, cohort=0.3)
    state = first_state(prepared, progress=Progress(first=4.0, smoothed=1.0, plateaus=2))
    now = now_in(prepared, state, 7)
    assert (now.round, now.cohort, now.clients, now.total_samples) == (7, 3.0, 10, 10)
    assert (now.loss_ratio, now.plateaus) == (0.25, 2)


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_an_absent_client_whose_tensors_are_not_finite_is_told(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """It keeps what it had, and nobody would know: it sends nothing that could be refused."""
    algorithm = ft.algorithms.pfedme(lr=0.1, personal_lr=0.2, lam=1.5, inner_steps=2, local_rounds=2, train_absent=True)
    settings = {"dtype": torch.float64, "evaluation": None, "backend": backend, "cohort": ft.cohort.fixed([[0, 1]] * 2)}
    data = clients_of([1.0], [2.0], [TOO_LARGE])
    with caplog.at_level("DEBUG", "fedtempo"):
        result = ft.run(model=OneWeight(), data=data, algorithm=algorithm, rounds=2, **settings)
    assert [report.measurements.get("absent_not_finite") for report in result.history] == [1.0, 1.0]
    assert not any(report.failures for report in result.history)
    assert "absent clients that are not finite and keep what they had: 1" in caplog.text
