"""Phases: how many steps, on which rows, and where each step stands."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import fedtempo as ft
from fedtempo.client.phase import Phase, length
from fedtempo.data.batches import Batching
from fedtempo.schedules import Now, as_schedule, constant, decaying_k, sequence


def phase(**changes: object) -> Phase:
    return replace(Phase(length(steps=2), as_schedule(0.25)), **changes)  # type: ignore[arg-type]


def test_lengths_by_hand() -> None:
    batching = Batching(4)
    assert length(steps=5).steps(Now(), 100, batching) == 5
    assert length(epochs=2).steps(Now(), 9, batching) == 2 * 3
    assert length(epochs=2, times=2, offset=1).steps(Now(), 9, batching) == 13
    assert length(epochs=3).steps(Now(), 9, Batching(None)) == 3
    assert [length(steps=decaying_k(5, 0.5)).steps(Now(round=r), 9, batching) for r in range(4)] == [5, 3, 2, 1]
    assert length(steps=0, minimum=0).steps(Now(), 9, batching) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of steps and epochs"),
        ({"steps": 1, "epochs": 1}, "exactly one of steps and epochs"),
        ({"steps": 0}, "steps must be an int >= 1 or a schedule. Got 0."),
        ({"epochs": 0.0}, "epochs must be a number > 0 or a schedule. Got 0.0."),
        ({"steps": constant(0.5)}, r"steps must be an int >= 1 or a schedule. Got constant\(value=0.5\)."),
    ],
)
def test_lengths_that_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ft.ConfigError, match=message):
        length(**arguments)


@pytest.mark.parametrize(
    ("part", "samples", "rows"),
    [
        ("train", 5, (0, 5)),
        ("support", 5, (0, 3)),
        ("query", 5, (3, 2)),
        ("support", 4, (0, 2)),
        ("query", 4, (2, 2)),
        ("support", 1, (0, 1)),
        ("query", 1, (0, 1)),  # a single row serves as both
    ],
)
def test_support_and_query_rows_halve_a_client(part: str, samples: int, rows: tuple[int, int]) -> None:
    assert phase(part=part).rows(samples) == rows


def test_positions_count_steps_and_epochs_of_the_rows_that_are_used() -> None:
    """Nine rows, of which five support rows make two batches of at most four: an epoch is two steps."""
    timeline = phase(length=length(epochs=2), part="support").positions(Now(round=3), 9, Batching(4))
    assert [(now.round, now.step, now.steps, now.epoch) for now in timeline] == [
        (3, 0, 4, 0),
        (3, 1, 4, 0),
        (3, 2, 4, 1),
        (3, 3, 4, 1),
    ]
    assert [now.ends_epoch for now in timeline] == [False, True, False, True]
    assert {now.samples for now in timeline} == {9}


@pytest.mark.parametrize(
    ("epochs", "rows", "steps"),
    [
        (0.25, 40, 3),
        (0.25, 3, 1),
        (0.5, 4, 1),
        (1.5, 8, 3),
        (1, 9, 3),
        (2, 9, 6),
        (constant(0.5), 16, 2),
        (0.1, 120, 3),
    ],
)
def test_parts_of_an_epoch_are_batches_rounded_up(epochs: object, rows: int, steps: int) -> None:
    """Batches of four: 40 rows make ten, of which a quarter is 2.5, so three."""
    whole = length(epochs=epochs)  # type: ignore[arg-type]
    assert whole.steps(Now(), rows, Batching(4)) == steps
    assert whole.steps_before(Now(round=3), rows, Batching(4)) == 3 * steps


def test_a_schedule_of_epochs_rounds_up_to_whole_ones() -> None:
    assert length(epochs=sequence([0.5, 1.5], over="round")).steps(Now(round=1), 8, Batching(4)) == 4


def twelve_rows() -> dict[str, object]:
    data = ft.data.FederatedData.from_clients([(torch.randn(12, 3).numpy(), (torch.arange(12) % 2).numpy())])
    return {"model": ft.models.mlp(3, [2], 2), "data": data, "batch_size": 4}


def test_parts_of_an_epoch_are_drawn_at_random() -> None:
    half = ft.algorithms.fedavg(0.1, epochs=0.5)
    assert ft.run(**twelve_rows(), rounds=1, algorithm=half).history[0].costs.steps == 2
    with pytest.raises(ft.ConfigError, match="epochs must be at least 1 where batches come in order"):
        ft.run(**twelve_rows(), rounds=1, algorithm=half, batches="in_order")


def test_a_schedule_that_ends_with_the_run_ends_with_this_run() -> None:
    ft.run(**twelve_rows(), rounds=4, algorithm=ft.algorithms.fedavg(ft.schedules.wsd(0.1, 4, decay=2) * 1.0, 1))
    with pytest.raises(ft.ConfigError, match=r"lr must be planned for the run's rounds \(4\).*Got rounds=5"):
        ft.run(**twelve_rows(), rounds=4, algorithm=ft.algorithms.fedavg(ft.schedules.wsd(0.1, 5), 1))


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_a_warm_up_by_steps_goes_on_from_round_to_round(backend: str) -> None:
    """One weight, gradient 1: the way is the sum of the rates 1/6 .. 6/6 over two rounds of three steps."""
    data = ft.data.FederatedData.from_clients([{"x": torch.ones(4, 1).numpy()}])
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    algorithm = ft.algorithms.fedavg(ft.schedules.warmup(1.0, 6, over="step"), 3)
    settings = {"rounds": 2, "loss": "direct", "evaluation": None, "dtype": torch.float64, "backend": backend}
    result = ft.run(model=model, init="model", data=data, algorithm=algorithm, **settings)
    assert float(result.model().weight.detach()) == pytest.approx(-21 / 6)
