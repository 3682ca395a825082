"""The model you get is the model that was scored: the selected round's state is kept, in memory and on disk."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.backends import serial
from fedtempo.backends.engine import InProcess
from fedtempo.errors import ConfigError, StoreError
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.evaluation.scoring import Evaluator
from fedtempo.report.folder import summary
from tests.slow import slow_but

ROUNDS = 8


def settings(**changes):
    """Validation gets worse in the end: the rate explodes after round 3, so an earlier round is selected."""
    rng = np.random.default_rng(1)
    centre = rng.standard_normal((4, 6))
    clients = []
    for _ in range(6):
        y = rng.integers(0, 4, 30)
        clients.append((centre[y] + 0.7 * rng.standard_normal((30, 6)), y))
    explodes = ft.schedules.sequence([0.05] * 4 + [3.0] * 4, over="round")
    given = {
        "model": ft.models.mlp(6, [5], 4),
        "data": ft.data.FederatedData.from_clients(clients, validation=0.3, test=0.3),
        "algorithm": ft.algorithms.fedper(lr=explodes, steps=6),
        "rounds": ROUNDS,
        "cohort": 3,
        "batch_size": 8,
        "evaluation": Evaluation(every=1, steps=0),
    }
    return {**given, **changes}


def scored_again(result: ft.Result, which: str) -> float:
    """Test accuracy of the state that the result hands out."""
    federation, state = result.experiment.federation, result.at(which)
    evaluator = Evaluator(
        federation,
        InProcess(federation, serial),
        Evaluation(steps=0),
        8,
        lambda client: result.client_state(client, which),
    )
    extra = federation.algorithm.server.extra(state.server)
    (scores,) = evaluator.scores(result.served(which), extra, state.now, "test")
    return scores.existing_before.summary("accuracy")["mean"]


def reported(result: ft.Result) -> float:
    return result.scores.existing_before.summary("accuracy")["mean"]


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def test_what_is_handed_out_scores_what_was_reported():
    result = ft.run(**settings())
    assert result.selected.round < ROUNDS - 1
    assert scored_again(result, "selected") == reported(result) != scored_again(result, "last")
    assert result.at().round == result.selected.round and result.at("last").round == ROUNDS - 1
    assert not same(result.params, result.at("last").shared)
    with pytest.raises(ConfigError, match="which must be 'selected' or 'last'"):
        result.at("best")


@pytest.mark.parametrize(
    "commit_every", slow_but([1, 3], [1, 3, 20], "one commit for all rounds; three for several runs")
)
def test_the_folder_keeps_the_selected_state_bit_for_bit(tmp_path, commit_every):
    plain = ft.run(**settings())
    stored = ft.run(**settings(), out=tmp_path / "run", commit_every=commit_every)
    again = ft.run(**settings(), out=tmp_path / "run", resume=True)
    assert plain.digest() == stored.digest() == again.digest()
    for result in (stored, again):
        assert result.at().round == plain.at().round and result.at().now == plain.at().now
        for which in ("selected", "last"):
            assert same(result.at(which).shared, plain.at(which).shared)
            for client in range(6):
                assert same(result.client_state(client, which), plain.client_state(client, which))
    assert scored_again(again, "selected") == reported(plain)


@pytest.mark.parametrize("stop", slow_but([1, 4], range(1, ROUNDS), "the first and one between run"))
def test_a_run_stopped_anywhere_ends_with_the_same_selection(tmp_path, stop):
    plain = ft.run(**settings())
    rounds = ft.train(**settings(), out=tmp_path / "run")
    for _ in range(stop):
        next(rounds)
    rounds.close()
    again = ft.run(**settings(), out=tmp_path / "run", resume=True)
    assert again.digest() == plain.digest()
    assert same(again.params, plain.params)
    assert all(same(again.client_state(c), plain.client_state(c)) for c in range(6))


@pytest.mark.parametrize("stop", slow_but([4], range(2, ROUNDS), "one between runs"))
def test_going_back_a_round_goes_back_to_its_selection(tmp_path, stop):
    plain = ft.run(**settings())
    rounds = ft.train(**settings(), out=tmp_path / "run")
    for _ in range(stop):
        next(rounds)
    rounds.close()
    with closing(sqlite3.connect(tmp_path / "run" / "run.sqlite")) as connection:
        connection.execute("UPDATE shared SET numbers = '{}' WHERE round = ?", (stop - 1,))
        connection.commit()
    again = ft.run(**settings(), out=tmp_path / "run", resume=True)
    assert again.digest() == plain.digest() and same(again.params, plain.params)
    assert all(same(again.client_state(c), plain.client_state(c)) for c in range(6))


@pytest.mark.parametrize(
    "damage", ["UPDATE selected SET numbers = '{}'", "DELETE FROM selected", "DELETE FROM put_aside"]
)
def test_damage_to_the_selected_state_is_noticed(tmp_path, damage):
    ft.run(**settings(), out=tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run" / "run.sqlite")) as connection:
        assert connection.execute("SELECT COUNT(*) FROM put_aside").fetchone()[0] > 0
        connection.execute(damage)
        connection.commit()
    with pytest.raises(StoreError):
        ft.run(**settings(), out=tmp_path / "run", resume=True)


def test_without_validation_the_last_round_counts():
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((12, 6)), rng.integers(0, 4, 12)) for _ in range(4)]
    result = ft.run(**settings(data=ft.data.FederatedData.from_clients(clients), rounds=2))
    assert result.chosen is None and result.at() is result.last
    assert "model: the last round, 2" in result.notes


def test_the_summary_and_the_table_say_which_round():
    result = ft.run(**settings())
    assert summary(result)["selected_round"] == result.selected.number
    (why,) = [note for note in summary(result)["notes"] if note.startswith("model: ")]
    best = result.selected.validation.guiding.summary("accuracy")["mean"]
    assert why.startswith(f"model: round {result.selected.round + 1} of {ROUNDS}, selected by validation: ")
    assert f"accuracy of users after fine-tuning, {best:.3f}, is the best" in why
    assert f"round {result.selected.round + 1} of {ROUNDS}, selected by validation" in str(result.table())


def test_personalize_serves_the_selected_model():
    result = ft.run(
        **settings(algorithm=ft.algorithms.fedavg(lr=ft.schedules.sequence([0.05] * 4 + [3.0] * 4, "round"), steps=6))
    )
    rows = result.experiment.federation.problem.client_rows(0)
    served = result.personalize(rows, steps=0)
    assert same(served.shared, result.params)
    assert same(result.personalize(rows, steps=0, which="last").shared, result.at("last").shared)
