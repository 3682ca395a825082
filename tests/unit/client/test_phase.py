"""Phases: how many steps, on which rows, and where each step stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fedtempo as ft
from fedtempo.client.phase import Phase, length
from fedtempo.data.batches import Batching
from fedtempo.schedules import Now, as_schedule, decaying_k


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
        ({"epochs": 1.5}, "epochs must be an int >= 1 or a schedule. Got 1.5."),
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
