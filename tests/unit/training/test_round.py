"""A round: where it stands, who is asked, what the mean does to the model, and which functions it enters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.server.sums import BlockSum, Failure
from fedtempo.training.clock import Participants
from fedtempo.training.experiment import Experiment
from fedtempo.training.round import REMEMBERED_NORMS, ask, conclude, norm_limit, position, send
from fedtempo.training.round_report import RoundReport
from fedtempo.training.state import Progress, State
from tests.one_weight import OneWeight, clients_of, experiment, first_state, run_on
from tests.tracing import plain_round

ROWS = [[float(client)] for client in range(10)]
TOO_LARGE = 1.7e308
"""A target at which the gradient overflows."""


def test_of_more_that_were_asked_some_arrive_first() -> None:
    prepared = experiment(*ROWS, cohort=4, over_selection=0.5)
    state = first_state(prepared)
    now = position(run_on(prepared), state, 3)
    everybody, first = (ask(run_on(prepared, real), state, now).clients.tolist() for real in (True, False))
    assert (len(everybody), len(first), now.cohort) == (6, 4, 4.0)
    assert set(first) < set(everybody) and first == sorted(first)


def test_who_drops_out_is_a_failure_and_trains_nothing() -> None:
    prepared = experiment(*ROWS, faults=ft.Faults(drop=0.5))
    state = first_state(prepared)
    run = run_on(prepared)
    clients, failures, *_ = ask(run, state, position(run, state, 0))
    assert sorted([*clients.tolist(), *(failure.client for failure in failures)]) == list(range(10))
    assert {failure.reason for failure in failures} == {"dropped out"}
    assert 0 < len(failures) < 10


def test_now_knows_how_training_is_getting_on() -> None:
    prepared = experiment(*ROWS, cohort=0.3)
    state = first_state(prepared, progress=Progress(first=4.0, smoothed=1.0, plateaus=2))
    now = position(run_on(prepared), state, 7)
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
    state, run = state or first_state(prepared), run_on(prepared)
    return conclude(run, state, sums, Participants(np.array(clients), []), position(run, state, 0))


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
    assert run_on(prepared).admission == ft.Admission(max_ratio=3.0, max_norm=50.0)
    assert norm_limit(ft.Admission(max_ratio=3.0, max_norm=50.0), first_state(prepared)) == 50.0
    limits = []
    for chosen in (prepared, experiment(*ROWS)):
        run, state = run_on(chosen), first_state(prepared, norms=(1.0, 2.0, 9.0))
        limits.append(send(run, state, position(run, state, 0)).limit)
    assert limits == [6.0, float("inf")]
    state = first_state(prepared, norms=tuple(range(REMEMBERED_NORMS)))
    after, _, _ = concluded(prepared, block(1.0, norms=[4.0, 6.0, 8.0]), state)
    assert after.norms == (*range(1, REMEMBERED_NORMS), 6.0)


FEATURES = {
    "injected faults": ("server/fault_injection.py",),
    "compression": ("client/compression/", "federation/traffic.py", "backends/collect.py compressed"),
    "admission": ("server/admission.py", "server/policy.py", "server/robust.py", "training/round.py norm_limit"),
    "devices and deadlines": ("devices/", "training/clock.py", "backends/serial.py until_deadline", "most_steps"),
    "privacy": ("server/noise.py", "server/private_mean.py", "training/private_rounds.py", "Federation.private"),
    "asynchrony": ("training/asynchronous/", "server/asynchrony.py"),
    "limits of memory": ("backends/memory.py", "data/mapped_pages.py"),
    "absent clients": ("training/round.py train_absent", "training/round.py with_lost_work"),
    "evaluation": ("evaluation/", "training/round_scores.py"),
    "folders": ("training/storage/on_disk.py", "training/storage/database.py"),
}
"""Beginnings of files, and functions, by the feature that they belong to."""


def entered(feature: str, functions: list[tuple[str, str]]) -> list[str]:
    return [f"{f} {name}" for f, name in functions if any(part in f"{f} {name}" for part in FEATURES[feature])]


def test_what_a_run_does_not_use_is_not_on_its_way() -> None:
    """A plain FedAvg round, client by client: no function of a feature that the run has not asked for is entered."""
    trace = plain_round()
    assert {feature: found for feature in FEATURES if (found := entered(feature, trace.functions))} == {}
    assert len(trace.files) <= 45 and len(trace.named) <= 150


def test_what_a_run_uses_is_on_its_way() -> None:
    """The names above are those of today's functions: a run with the feature enters them."""
    traces = {
        "injected faults": plain_round(faults=ft.Faults(nan=0.1)),
        "compression": plain_round(algorithm=ft.algorithms.fedavg(0.1, 1, compress=ft.compress.top_k(0.5))),
        "admission": plain_round(admission=ft.Admission(max_norm=9.0)),
        "devices and deadlines": plain_round(devices=ft.devices.constant(0.1), deadline=5.0, partial_work=True),
        "limits of memory": plain_round(backend="vectorised"),
        "evaluation": plain_round(evaluation=ft.Evaluation()),
    }
    for feature, trace in traces.items():
        assert entered(feature, trace.functions), feature
