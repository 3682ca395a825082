"""Scores of users on their own rows: who has diverged, whose rows are ignored, what rows weigh."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.metrics import METRICS


class Given(nn.Module):
    """Returns its inputs, but NaN for 1000 and infinity for 2000; the weight is there to be trained, at a rate of 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        broken = torch.where(x == 1000, math.nan, torch.where(x == 2000, math.inf, x))
        return broken + self.weight


def scores(clients: list[tuple[np.ndarray, np.ndarray]], **settings: Any) -> ft.evaluation.protocol.UserScores:
    """Of the outputs that the inputs are; nothing is fine-tuned."""
    settings = {"algorithm": ft.algorithms.fedavg(0.0, 1), "rounds": 1, "backend": "serial", **settings}
    data = ft.data.FederatedData.from_clients(clients)
    result = ft.run(model=Given(), data=data, **settings, evaluation=ft.Evaluation(steps=0), progress=False)
    assert result.scores is not None
    return result.scores.existing_before


BROKEN = [1000.0, 2000.0]


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("value", BROKEN)
def test_a_user_whose_model_has_diverged_has_the_worst_score(value: float, backend: str) -> None:
    """Accuracy would call a row of NaN class 0, and errors of NaN would be taken for undefined."""
    good, labels = np.array([[5.0, 0.0], [0.0, 5.0]]), np.array([0, 1])
    bad = np.array([[5.0, 0.0], [value, value]])
    for metric in ("accuracy", "brier", "perplexity", "auroc", "f1_macro"):
        found = scores([(good, labels), (good, labels)], metrics=[metric], backend=backend).values[metric]
        assert np.isfinite(found).all()
        diverged = METRICS[metric].worst
        # The first rows are checked before training, so the numbers go wrong in the test part.
        data = ft.data.FederatedData.from_clients(
            [(good, labels), (good, labels)], test=[(good, labels), (bad, labels)]
        )
        settings = {"algorithm": ft.algorithms.fedavg(0.0, 1), "rounds": 1, "metrics": [metric], "backend": backend}
        result = ft.run(model=Given(), data=data, **settings, evaluation=ft.Evaluation(steps=0), progress=False)
        assert result.scores is not None
        users = result.scores.existing_before
        assert users.values[metric].tolist() == [found[0], diverged]
        assert users.undefined(metric) == 0 and users.summary(metric)["worst"] == diverged


def tokens(ignored: bool) -> tuple[np.ndarray, np.ndarray]:
    """Two sequences of two tokens that are predicted well; of the second none may count."""
    outputs = np.array([[[5.0, 0.0], [0.0, 5.0]], [[5.0, 0.0], [0.0, 5.0]]])
    return outputs, np.array([[0, 1], [-100, -100] if ignored else [0, 1]])


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_a_sequence_without_a_token_that_counts_is_no_row(backend: str) -> None:
    users = scores([tokens(ignored=True), tokens(ignored=False)], loss="language", backend=backend)
    assert users.values["accuracy"].tolist() == [1.0, 1.0]
    for metric in ("loss", "perplexity"):
        assert users.values[metric][0] == pytest.approx(users.values[metric][1])


def test_a_sequence_without_a_token_that_counts_changes_no_gradient() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, (4, 6)), rng.integers(0, 5, (4, 6))
    more = (np.concatenate([x, x]), np.concatenate([y, np.full_like(y, -100)]))
    net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5))
    settings = {"algorithm": ft.algorithms.fedavg(0.5, 1), "rounds": 1, "loss": "language", "progress": False}
    results = [
        ft.run(model=net, data=ft.data.FederatedData.from_clients([rows]), **settings, evaluation=None, init="model")
        for rows in ((x, y), more)
    ]
    for name, tensor in results[0].params.items():
        torch.testing.assert_close(tensor, results[1].params[name])


def test_rows_that_weigh_nothing_or_less_are_refused_in_every_part() -> None:
    rng = np.random.default_rng(0)

    def rows(weights: list[float]) -> dict[str, np.ndarray]:
        return {"x": rng.normal(size=(2, 3)), "y": np.array([0, 1]), "sample_weight": np.array(weights)}

    settings = {"model": nn.Linear(3, 2), "algorithm": ft.algorithms.fedavg(0.1, 1), "rounds": 1, "progress": False}
    for weights in ([0.0, 0.0], [1.0, -1.0]):
        data = ft.data.FederatedData.from_clients([rows([1.0, 1.0])] * 2, test=[rows([1.0, 1.0]), rows(weights)])
        with pytest.raises(ft.DataError, match=r"sample_weight' must hold numbers >= 0.*client 1, test rows"):
            ft.run(**settings, data=data)
