"""Algorithms as values: they print as the call that made them, are checked as they are made, and can be wrapped."""

from __future__ import annotations

import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.algorithms.algorithm import Algorithm, displacement
from fedtempo.algorithms.named import named
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry, Phase, length
from fedtempo.client.transforms import scale
from fedtempo.params import Params
from fedtempo.schedules import Now, Position, Rate, as_schedule, per_round
from tests import zoo


@named
def walk(lr: Rate, steps: int = 1) -> Algorithm:
    return Algorithm((Phase(length(steps=steps), as_schedule(lr)),))


def _thirds(gradient: Params, params: Params, now: Position) -> Params:
    return {n: g / 3 for n, g in gradient.items()}


def test_a_server_optimizer_prints_with_its_settings_and_without_addresses() -> None:
    backbone, transforms = a.fedavg(lr=0.1, steps=2), ft.transforms
    made = [
        *(transforms.momentum(0.5), transforms.momentum(0.9), transforms.momentum(0.9, nesterov=True)),
        *(transforms.scale_by_adam(), transforms.scale_by_adam(b2=0.9), transforms.scale_by_adam(initial=0.3)),
        *(transforms.scale_by_yogi(), transforms.chain(transforms.momentum(0.5), transforms.scale_by_adam())),
        *(transforms.stateless(_thirds), transforms.identity, ft.optimizers.adam()),
    ]
    words = [repr(a.with_server(backbone, each)) for each in made]
    assert len(set(words)) == len(words)
    assert not any("0x" in each for each in words)
    assert "optimizer=momentum(decay=0.5, nesterov=False)" in words[0]


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


def test_clients_settings_need_no_annotation() -> None:
    @named
    def passing(lr: Rate, **clients):  # type: ignore[no-untyped-def]
        return a.fedavg(lr, 1, **clients)

    momentum = ft.optimizers.sgd(0.9)
    assert passing(0.1, optimizer=momentum).phases[0].optimizer is momentum
    with pytest.raises(ft.ConfigError, match=r"passing: setting 'optimiser' is not known. Did you mean 'optimizer'"):
        passing(0.1, optimiser=momentum)


def takes_any(lr, *rest):  # type: ignore[no-untyped-def]
    return walk(lr)


def takes_places(lr, /):  # type: ignore[no-untyped-def]
    return walk(lr)


def takes_numbers(lr: Rate, **more: int) -> Algorithm:
    return walk(lr)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (takes_any, "arguments of takes_any must be such that they can be given by name. Got ['*rest']."),
        (takes_places, "arguments of takes_places must be such that they can be given by name. Got ['lr']."),
        (takes_numbers, "**more of takes_numbers must be of type Unpack[ft.ClientSettings], or of none. Got"),
    ],
)
def test_a_function_that_cannot_be_named_is_refused(build, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ft.ConfigError) as caught:
        named(build)
    assert message in str(caught.value)


def test_a_named_function_returns_an_algorithm() -> None:
    @named
    def forgets(lr: Rate) -> Algorithm:
        walk(lr)  # type: ignore[return]

    with pytest.raises(ft.ConfigError, match=r"what forgets returns must be an Algorithm\. Got None\."):
        forgets(0.1)


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
