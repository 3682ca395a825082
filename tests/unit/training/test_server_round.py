"""The end of a round at the server: what the mean does to the model, and rounds that do not count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.server.sums import BlockSum, Failure
from fedtempo.training.clock import Participants
from fedtempo.training.experiment import Experiment
from fedtempo.training.one_round import norm_limit, now_in
from fedtempo.training.round_report import RoundReport
from fedtempo.training.server_round import REMEMBERED_NORMS, conclude
from fedtempo.training.state import Progress, State
from tests.one_weight import experiment, first_state, ledger_of

ROWS = [[float(client)] for client in range(10)]


def block(*deltas: float, **fields: Any) -> BlockSum:
    """The sum of uploads with these displacements, each of weight 1 and loss 2."""
    result = BlockSum(**fields)
    for delta in deltas:
        result.add_clients(np.ones(1), np.full(1, 2.0), {})
        result.add_upload({"delta": {"w": torch.tensor([delta], dtype=torch.float64)}})
    return result


def concluded(
    prepared: Experiment, sums: BlockSum, state: State | None = None, clients: tuple[int, ...] = (1, 4)
) -> tuple[State, dict[int, Any], RoundReport]:
    state = state or first_state(prepared)
    now = now_in(prepared, state, 0)
    return conclude(prepared, state, sums, Participants(np.array(clients), []), now, ledger_of(prepared))


def test_the_model_moves_by_the_mean() -> None:
    state, personal, report = concluded(experiment(*ROWS), block(3.0, -1.0, personal={4: {}}))
    assert state.shared["w"].tolist() == [1.0]
    assert (report.loss, tuple(report.clients), report.abandoned) == (2.0, (1, 4), False)
    assert (list(personal), state.progress.smoothed) == ([4], 2.0)
    assert report.params["w"].tolist() == [1.0]


def test_the_servers_rate_and_state_are_the_algorithms() -> None:
    """FedAvgM at momentum 0.5 after displacements 2 and 2: 2, then 2 + (2 + 0.5 * 2)."""
    prepared = experiment(*ROWS, algorithm=ft.algorithms.fedavgm(lr=0.25, steps=1, momentum=0.5, server_lr=1.0))
    first, _, _ = concluded(prepared, block(2.0))
    second, _, _ = concluded(prepared, block(2.0), first)
    assert (first.shared["w"].tolist(), second.shared["w"].tolist()) == ([2.0], [5.0])


def test_below_quorum_the_model_keeps_its_bits_and_the_work_is_still_charged() -> None:
    prepared = experiment(*ROWS, quorum=3)
    state, personal, report = concluded(prepared, block(3.0, -1.0, personal={4: {}}))
    assert report.abandoned
    assert (state.shared["w"].tolist(), personal, state.progress) == ([0.0], {}, Progress())
    assert state.costs.steps == 2
    counted, _, _ = concluded(prepared, block(3.0, -1.0, 1.0), clients=(1, 4, 5))
    assert counted.shared["w"].tolist() == [1.0]


def test_failures_are_reported_in_order_and_are_not_among_the_clients() -> None:
    sums = block(3.0, failures=[Failure(4, "too large")])
    _, _, report = concluded(experiment(*ROWS), sums)
    assert (tuple(report.clients), report.failures) == ((1,), (Failure(4, "too large"),))


def test_clients_that_all_diverge_stop_the_run() -> None:
    with pytest.raises(ft.TrainingError, match="no client's update is finite in round 0"):
        concluded(experiment(*ROWS), BlockSum(failures=[Failure(1, "not finite")]))
    injected = experiment(*ROWS, faults=ft.Faults(nan=0.5))
    _, _, report = concluded(injected, BlockSum(failures=[Failure(1, "not finite")]))
    assert report.abandoned


def test_a_model_that_is_not_finite_stops_the_run() -> None:
    prepared = experiment(*ROWS)
    far = first_state(prepared)._replace(shared={"w": torch.tensor([1.7e308], dtype=torch.float64)})
    with pytest.raises(ft.TrainingError, match="the model is not finite after round 0"):
        concluded(prepared, block(1.7e308), far)


def test_the_norm_of_clipped_steps_is_a_mean_over_those_steps() -> None:
    sums = block(3.0)
    sums.add_clients(np.ones(2), np.ones(2), {"clipped_norm": np.array([6.0, 4.0]), "clipped_steps": np.array([3, 2])})
    _, _, report = concluded(experiment(*ROWS), sums)
    assert (report.measurements["clipped_norm"], report.measurements["clipped_steps"]) == (2.0, 5.0)


def test_an_aggregator_replaces_the_mean() -> None:
    prepared = experiment(*ROWS, aggregator=ft.robust.median())
    each = [(1.0, {"w": torch.tensor([d], dtype=torch.float64)}) for d in (1.0, 2.0, 60.0)]
    state, _, _ = concluded(prepared, block(1.0, 2.0, 60.0, each=each, norms=[1.0, 2.0, 60.0]))
    assert state.shared["w"].tolist() == [2.0]
    assert state.norms == (2.0,)


def test_norms_of_the_latest_rounds_set_the_limit() -> None:
    """Three times the median of the norms remembered; before there are any, only the fixed limit holds."""
    prepared = experiment(*ROWS, admission=ft.Admission(max_ratio=3.0, max_norm=50.0))
    assert norm_limit(prepared.federation, first_state(prepared)) == 50.0
    assert norm_limit(prepared.federation, first_state(prepared, norms=(1.0, 2.0, 9.0))) == 6.0
    assert norm_limit(experiment(*ROWS).federation, first_state(prepared, norms=(1.0,))) == float("inf")
    state = first_state(prepared, norms=tuple(range(REMEMBERED_NORMS)))
    after, _, _ = concluded(prepared, block(1.0, norms=[4.0, 6.0, 8.0]), state)
    assert after.norms == (*range(1, REMEMBERED_NORMS), 6.0)
