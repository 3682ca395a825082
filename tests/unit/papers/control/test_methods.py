"""The comparison of controls: the same tuning for every method, the same work where work is compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fedtempo as ft
from fedtempo.papers.control import CIFAR10, CONTROLS, FEMNIST
from fedtempo.papers.control.methods import BASELINES, FEDAVG, FEWER, METHODS, QSR, equal_steps, rounds_run
from fedtempo.papers.framework.definitions import Data, Model, Training, sized
from fedtempo.schedules import Now, Schedule

SCALE = sized(seeds=1, minutes=0, rounds=20, cohort=4, k=10, rate=0.1, max_norm=2.0, batch=16)


def test_every_method_is_tuned_with_the_same_candidates_on_seeds_that_are_not_judged() -> None:
    for one in CONTROLS:
        tuning = one.scales["medium"].tuning
        assert tuning is not None and set(tuning.contestants) == set(METHODS)
        assert len({contestant.values for contestant in tuning.contestants.values()}) == 1
        assert one.scales["medium"].seeds >= 5
        assert min(tuning.seeds) > one.scales["medium"].seeds


def test_a_tuned_rate_reaches_its_method_and_no_other() -> None:
    medium = replace(FEMNIST.scales["medium"], chosen={FEDAVG: 0.77})
    made = {run.label: repr(run) for run in FEMNIST.runs(medium, 0)}
    assert set(made) == set(METHODS) and {*BASELINES.values()} <= set(made)
    assert "lr=0.77" in made[FEDAVG]
    assert not any("0.77" in text for label, text in made.items() if label != FEDAVG)


def test_cifar_images_are_augmented() -> None:
    runs = CIFAR10.runs(CIFAR10.scales["medium"], 0)
    assert all(isinstance(run, Training) and "augment" in run.settings for run in runs)


def test_qsr_grows_from_half_of_k_to_twice_k() -> None:
    steps: Schedule = METHODS[QSR](0.1, SCALE).settings["steps"]
    counts = [steps.at(Now(round=number)) for number in range(20)]
    assert counts[0] == 5 and max(counts) == 20 and counts == sorted(counts)


def test_equal_steps_are_those_of_decaying_k_and_the_tested_round_is_validation_s() -> None:
    data = Data("digits", ft.data.dirichlet(10, 0.5), 0, {"validation": 0.2, "min_samples": 5}, rows=400)
    result = ft.run(
        model=Model("mlp", {"inputs": 64, "hidden": [8], "outputs": 10}).maker(None),
        data=data.load(None),
        algorithm=METHODS[FEWER](0.1, SCALE),
        rounds=20,
        cohort=4,
        batch_size=16,
        seed=1,
        evaluation=ft.Evaluation(every=5, steps=0),
    )
    assert result.costs.steps == equal_steps(SCALE)
    scores = {r.round + 1: r.scores.existing_after.summary("accuracy")["mean"] for r in result.history if r.scores}
    found = rounds_run(result).values
    assert found["rounds"] == 20
    assert scores[int(found["selected"])] == pytest.approx(max(scores.values()))
