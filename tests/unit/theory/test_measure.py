"""Which clients and rows are measured."""

import sys

import numpy as np
import torch

from fedtempo.data import FederatedData
from fedtempo.models import logistic_regression
from fedtempo.theory.measure import measure, sample_clients


def test_sampling_is_seeded_and_bounded():
    data = FederatedData.from_clients([(np.random.rand(9, 2), np.arange(9) % 2) for _ in range(6)], new_clients=2)
    first, again, other = (sample_clients(data, clients=3, rows=5, seed=s) for s in (0, 0, 1))
    assert len(first) == 3
    assert all(len(batch["y"]) == 5 for batch in first)
    assert first[0]["x"].dtype == torch.float64
    assert all(torch.equal(a["x"], b["x"]) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a["x"], b["x"]) for a, b in zip(first, other, strict=True))
    assert len(sample_clients(data, clients=100)) == 4


def test_gamma_of_a_large_model_is_looked_for_only_when_asked(monkeypatch):
    """A minimum for every client of five million weights took minutes."""
    rng = np.random.default_rng(0)
    clients = [(rng.random((6, 3)), rng.random((6, 2)) < 0.5) for _ in range(3)]
    data, plan = FederatedData.from_clients(clients), {"lr": 0.1, "steps": 2, "rounds": 3, "loss": "multilabel"}
    assert measure(logistic_regression(3, 2), data, **plan).too_large_for_gamma == 0
    asked, module = [], sys.modules[measure.__module__]
    monkeypatch.setattr(module, "MOST_FOR_GAMMA", 7)
    monkeypatch.setattr(module, "optimality_gap", lambda *of: asked.append(of) or 0.5)
    left_out = measure(logistic_regression(3, 2), data, **plan)
    assert (left_out.gamma, left_out.too_large_for_gamma, len(asked)) == (None, 8, 0)
    assert "Gamma was not looked for: with 8 parameters it takes minutes (--gamma)" in str(left_out)
    found = measure(logistic_regression(3, 2), data, **plan, gamma=True)
    assert (found.gamma, found.too_large_for_gamma, len(asked)) == (0.5, 0, 1)
    never = measure(logistic_regression(3, 2), data, **plan, gamma=False)
    assert (never.gamma, never.too_large_for_gamma, len(asked)) == (None, 0, 1)
