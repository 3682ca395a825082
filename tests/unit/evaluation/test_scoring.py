"""Scoring users: in one pass where nothing is fine-tuned, by programs that are bound once."""

from __future__ import annotations

import pytest

import fedtempo as ft
from fedtempo.backends import Backend, serial
from fedtempo.federation.federation import Federation
from fedtempo.training.experiment import prepare
from fedtempo.training.loop import drained, train_experiment
from tests import zoo


def counted(asked: list[int]) -> Backend:
    """The serial backend, which notes how many phases each of its programs has."""

    def train(problem, program, *rest):
        asked.append(len(program.stages))
        return serial.train(problem, program, *rest)

    return Backend("counted", train)


def test_no_steps_need_no_second_pass() -> None:
    """Users that are not fine-tuned are scored once, with the scores that a rate of 0 gives."""
    asked: list[int] = []
    settings = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": zoo.ALGORITHMS["fedavg"]}
    settings |= {"rounds": 1, "cohort": 2, "batch_size": 4, "seed": 3, "block": 8, "progress": False}
    none = ft.run(**settings, backend=counted(asked), evaluation=ft.Evaluation(steps=0))
    assert asked.count(0) == 2 and len(asked) == 3  # one block trains; existing and new users are scored once
    still = ft.run(**settings, backend=counted(asked), evaluation=ft.Evaluation(steps=1, lr=0.0))
    assert len(asked) == 3 + 5
    assert none.scores is not None and still.scores is not None
    assert none.scores.summary() == still.scores.summary()


def test_programs_are_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after fine-tuning, for existing and for new users: four in all, however many blocks and rounds."""
    made: list[bool] = []
    real = Federation.compile

    def watched(self: Federation, phases, uploads: bool = False, as_kept: bool = False):
        made.append(uploads)
        return real(self, phases, uploads, as_kept)

    settings = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": zoo.ALGORITHMS["fedavg"], "rounds": 3}
    prepared = prepare(**settings, cohort=2, batch_size=4, backend="serial", block=1, evaluation=ft.Evaluation(every=1))
    monkeypatch.setattr(Federation, "compile", watched)
    drained(train_experiment(prepared))
    assert made.count(False) == 4
