"""A result, on the federation of one weight: digests, who was never heard, and the model of a new user."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from tests import zoo
from tests.one_weight import HALFWAY, OneWeight, clients_of

ROWS = ([4.0], [2.0], [-6.0])


def run(algorithm: ft.Algorithm | None = None, **settings: Any) -> ft.Result:
    usual = {"rounds": 2, "batch_size": None, "dtype": torch.float64, "evaluation": None, "backend": "serial"}
    chosen = algorithm or ft.algorithms.fedavg(lr=HALFWAY, steps=1)
    return ft.run(model=OneWeight(), data=clients_of(*ROWS), algorithm=chosen, **{**usual, **settings})


def test_the_model_by_hand() -> None:
    """Everybody steps halfway to 4, 2 and -6, whose mean is 0: the mean stays where it began."""
    result = run(init={"w": torch.tensor([8.0])})
    assert result.params["w"].tolist() == pytest.approx([2.0])  # 8 -> 4 -> 2
    assert [report.params["w"].tolist() for report in result.history] == [[pytest.approx(4.0)], [pytest.approx(2.0)]]
    assert result.costs.steps == 6
    assert result.seconds == sum(report.seconds for report in result.history)


def test_the_digest_knows_shared_server_and_personal_numbers() -> None:
    digests = [
        run().digest(),
        run(init={"w": torch.tensor([8.0])}).digest(),
        run(ft.algorithms.fedavgm(lr=HALFWAY, steps=1)).digest(),
        run(ft.algorithms.ditto(lr=HALFWAY, steps=1, lam=0.0)).digest(),
        run(ft.algorithms.ditto(lr=HALFWAY, steps=1, lam=0.5)).digest(),
    ]
    assert len(set(digests)) == len(digests)
    assert run().digest() == digests[0]


def test_who_never_sent_anything_that_counted() -> None:
    """Displacements from 0 are 2, 1 and -3: a limit of 2.5 refuses client 2 in every round that it is asked in."""
    result = run(admission=ft.Admission(max_norm=2.5), rounds=1)
    assert result.never_heard == [2]
    later = run(admission=ft.Admission(max_norm=3.2), cohorts=[[0, 1], [2]])
    assert later.never_heard == [2]  # from 1.5 it is 3.75 to go
    assert run().never_heard == []


def test_a_client_that_has_not_been_asked_has_its_first_state() -> None:
    result = run(ft.algorithms.ditto(lr=HALFWAY, steps=1, lam=0.0, personal_steps=1), cohorts=[[0]], rounds=1)
    assert result.client_state(0)["w"].tolist() == [2.0]
    assert result.client_state(2)["w"].tolist() == [0.0]


@pytest.mark.parametrize("client", [-1, 3, "a", 1.0, True])
def test_a_client_that_is_not_there_has_no_state(client: object) -> None:
    """-1 was no last client: its state was drawn as that of a client of this number."""
    with pytest.raises(ft.ConfigError, match=r"client must be an int in \[0, 3\)\. Got"):
        run().client_state(client)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "expected"), [({"steps": 0}, 0.0), ({"steps": 2}, 6.0), ({"steps": 1, "lr": 0.5}, 8.0)]
)
def test_a_new_user_is_fine_tuned_on_its_own_rows(settings: dict[str, float], expected: float) -> None:
    """From w = 0 to the user's 8: two halves of the way, or the whole way at once at twice the rate."""
    result = run(rounds=1)
    rows = (np.ones((1, 1)), np.array([[8.0]]))
    served = result.personalize(rows, **settings)
    assert served(torch.ones(1, 1)).tolist() == [[pytest.approx(expected, abs=1e-12)]]
    assert result.params["w"].tolist() == pytest.approx([0.0])


def test_rows_of_a_client_in_the_type_of_the_run_are_those_that_came_in() -> None:
    """A float32 has no 0.1: `data.client` rounds unless it is told the type."""
    data = clients_of([0.1], [0.3])
    result = ft.run(
        model=OneWeight(), data=data, algorithm=ft.algorithms.fedavg(lr=HALFWAY, steps=1), rounds=1, dtype=torch.float64
    )
    came = {name: column[data.positions(0)] for name, column in data.columns.items()}
    ways = [came, data.client(0, dtype=torch.float64), data.client(0)]
    exact, asked, rounded = (float(result.personalize(rows).shared["w"]) for rows in ways)
    assert exact == asked != rounded
    assert rounded == pytest.approx(exact, abs=1e-7)


def test_without_scores_nothing_is_selected() -> None:
    result = run()
    assert (result.selected, result.scores) == (None, None)
    assert "2 rounds" in repr(result) and result.digest()[:12] in repr(result)


def test_a_new_user_has_rows_with_the_columns_of_the_run() -> None:
    result = ft.run(model=zoo.model("mlp"), data=zoo.data("mlp"), algorithm=ft.algorithms.fedavg(0.1, 1), rounds=1)
    x = np.zeros((3, 6))
    with pytest.raises(ft.ConfigError, match=r"data must be rows with the columns of the run, 'x', 'y'.*without 'y'"):
        result.personalize((x,))
    with pytest.raises(ft.FedTempoError, match=r"at least one row|at least 1"):
        result.personalize((x[:0], np.zeros(0, np.int64)))


def test_a_run_without_a_finite_validation_score_says_so() -> None:
    rng = np.random.default_rng(0)
    clients = [(1e4 * rng.normal(size=(8, 3)), rng.normal(size=8)) for _ in range(3)]
    data = ft.data.FederatedData.from_clients(clients, validation=0.25, test=0.25)
    settings = {"algorithm": ft.algorithms.fedavg(1e-12, 1), "rounds": 1, "metrics": ["rmse"], "progress": False}
    diverges = ft.Evaluation(steps=40, lr=1.0)
    result = ft.run(model=torch.nn.Linear(3, 1), data=data, **settings, evaluation=diverges)
    assert any("no round has a finite validation score" in note for note in result.notes)
