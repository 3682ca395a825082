"""Algorithms as values: they print as the call that made them, are checked as they are made, and can be wrapped."""

from __future__ import annotations

import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.algorithms.algorithm import Algorithm, displacement, named
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry, Phase, length
from fedtempo.client.transforms import scale
from fedtempo.schedules import Now, Rate, as_schedule, per_round
from tests import zoo


@named
def walk(lr: Rate, steps: int = 1) -> Algorithm:
    return Algorithm((Phase(length(steps=steps), as_schedule(lr)),))


def test_it_prints_as_the_call_that_made_it() -> None:
    assert repr(walk(0.1)) == "walk(lr=0.1)"
    assert repr(walk(per_round(0.1, 0.9), steps=3)) == "walk(lr=per_round(value=0.1, factor=0.9), steps=3)"
    assert walk(0.1, steps=3).settings == {"lr": 0.1, "steps": 3}


@pytest.mark.parametrize("name", zoo.EVERYTHING)
def test_every_algorithm_is_made_again_from_its_settings(name: str) -> None:
    algorithm = zoo.EVERYTHING[name]
    again = a.ALGORITHMS[algorithm.name](**algorithm.settings)
    assert repr(again) == repr(algorithm)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": 0.1, "step": 3}, "walk: setting 'step' is not known. Did you mean 'steps'"),
        ({}, "walk: missing a required argument: 'lr'."),
        ({"lr": "fast"}, "lr must be a finite number or a schedule. Got 'fast'."),
        ({"lr": 0.1, "steps": 1.5}, "steps must be an int. Got 1.5."),
    ],
)
def test_arguments_are_checked_against_their_annotations(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ft.ConfigError) as caught:
        walk(**arguments)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_a_weighting_is_one_of_three() -> None:
    with pytest.raises(ft.ConfigError, match=r"weighting must be 'uniform' or 'samples' or 'processed'. Got 'rows'"):
        Algorithm((), weighting="rows")  # type: ignore[arg-type]


def test_the_usual_upload_is_the_displacement() -> None:
    received = Received({"w": torch.tensor([1.0])}, {})
    sent = displacement(received, Carry({"w": torch.tensor([3.5])}, {}, (), {}))
    assert sent["delta"]["w"].tolist() == [2.5]


def test_wrapping_the_direction_leaves_the_rest() -> None:
    wrapped = walk(0.1, steps=3).with_direction(lambda inner: scale(2.0))
    (phase,) = wrapped.phases
    moved, _ = phase.direction.update({"w": torch.tensor([1.5])}, phase.direction.init({}), {}, Now())
    assert moved["w"].tolist() == [3.0]
    assert phase.length.steps(Now(), 1, ft.data.Batching(4)) == 3
