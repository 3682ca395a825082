"""Scoring users: in one pass where nothing is fine-tuned, by programs that are bound once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.backends import Backend, serial
from fedtempo.federation.federation import Federation
from fedtempo.training.loop import drained, train_experiment
from fedtempo.training.prepare import prepare
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


@pytest.mark.parametrize("name", ["ditto", "local only", "fedavg"])
def test_users_whose_model_has_not_changed_are_not_scored_again(name: str, tmp_path: Path) -> None:
    """Served with models of their own and not fine-tuned, only those who took part are; the numbers are the same.

    FedAvg's users hold the shared model, which changes in every round.
    """
    asked: list[int] = []
    settings = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": zoo.ALGORITHMS[name], "seed": 3}
    settings |= {"cohort": 2, "batch_size": 4, "block": 1, "progress": False}
    settings |= {"evaluation": ft.Evaluation(every=1, steps=0), "backend": Backend("serial", counted(asked).train)}
    remembered = ft.run(**settings, rounds=4)
    # Programs without phases score: six users at first and two who took part in each later round; two new users always.
    scored = 4 * 6 if name == "fedavg" else 6 + 3 * 2
    assert asked.count(0) == scored + 4 * 2
    scratch = ft.run(**{**settings, "backend": Backend("serial code", counted([]).train)}, rounds=4)
    assert [repr(r.test) for r in remembered.history] == [repr(r.test) for r in scratch.history]
    ft.run(**settings, rounds=2, out=tmp_path / "run")
    resumed = ft.run(**settings, rounds=4, out=tmp_path / "run", resume=True)
    assert [repr(r.test) for r in resumed.history] == [repr(r.test) for r in scratch.history]


def test_fine_tuning_that_begins_later_is_scored_when_it_begins() -> None:
    """No steps in the first round, then some: what was remembered before must not stand in for them."""
    settings = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": zoo.ALGORITHMS["ditto"], "seed": 3}
    settings |= {"rounds": 3, "cohort": 2, "batch_size": 4, "progress": False}
    later = ft.Evaluation(every=1, steps=lambda now: 3 * now.round, lr=0.5)
    serial, lanes = (ft.run(**settings, evaluation=later, backend=name) for name in ("serial", "vectorised"))

    def losses(result: ft.Result) -> list[tuple[float, float]]:
        scores = [report.test for report in result.history if report.test is not None]
        return [(s.existing_before.summary("loss")["mean"], s.existing_after.summary("loss")["mean"]) for s in scores]

    assert [before == after for before, after in losses(serial)] == [True, False, False]
    assert np.array(losses(serial)) == pytest.approx(np.array(losses(lanes)), abs=1e-5)


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_a_user_without_rows_has_no_score(backend: str) -> None:
    """It was 0, so that who sorts users by accuracy found one without test rows to be served worst."""
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((n, 6)), rng.integers(0, 4, n)) for n in (9, 8, 7)]
    tests = [(rng.standard_normal((n, 6)), rng.integers(0, 4, n)) for n in (3, 0, 4)]
    result = ft.run(
        model=zoo.model("mlp"),
        data=ft.data.FederatedData.from_clients(rows, test=tests),
        algorithm=zoo.ALGORITHMS["fedavg"],
        rounds=1,
        metrics=["accuracy", "f1_macro"],
        backend=backend,
    )
    for users in result.scores.groups().values():
        assert all(np.isnan(values).tolist() == [False, True, False] for values in users.values.values())
        assert users.undefined("accuracy") == users.undefined("loss") == 0
        assert users.summary("accuracy")["mean"] == pytest.approx(np.nanmean(users.values["accuracy"]))
