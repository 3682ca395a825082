"""Gradient diversity, disagreement against chance, convexity, and Gamma against closed forms."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from fedtempo.data import dirichlet, iid, load
from fedtempo.errors import ConfigError
from fedtempo.models import mlp
from fedtempo.theory import disagreement, gradient_diversity, is_convex, model_loss, optimality_gap
from fedtempo.theory.heterogeneity import dealt_at_random, row_shares
from fedtempo.theory.measure import sample_clients


def vector(*values):
    return {"w": torch.tensor(values, dtype=torch.float64)}


def test_gradient_diversity_by_hand():
    """(3, 0), (0, 4), weights 1/3 and 2/3: (9/3 + 32/3) / ||(1, 8/3)||^2 = (41/3) / (73/9) = 123/73."""
    assert gradient_diversity([vector(3.0, 0.0), vector(0.0, 4.0)], [1 / 3, 2 / 3]) == pytest.approx(123 / 73)
    assert gradient_diversity([vector(3.0, 0.0), vector(0.0, 4.0)], [1, 2]) == pytest.approx(123 / 73)
    assert gradient_diversity([vector(1.0, 2.0)] * 5) == pytest.approx(1.0)
    assert gradient_diversity([vector(1.0), vector(-1.0)]) == math.inf
    assert gradient_diversity([vector(0.0), vector(0.0)]) == 1.0
    with pytest.raises(ConfigError, match=r"weights must be one number per gradient \(2\)"):
        gradient_diversity([vector(1.0), vector(1.0)], [1.0])


def test_dealing_keeps_rows_and_sizes():
    clients = [{"x": torch.arange(3.0)}, {"x": torch.arange(3.0, 8.0)}]
    dealt = dealt_at_random(clients, seed=1)
    assert [len(d["x"]) for d in dealt] == [3, 5]
    assert sorted(torch.cat([d["x"] for d in dealt]).tolist()) == list(range(8))
    assert row_shares(clients) == [3 / 8, 5 / 8]
    assert torch.equal(dealt_at_random(clients, seed=1)[0]["x"], dealt[0]["x"])


def digits(split):
    return sample_clients(load("digits").split(split, seed=0, min_samples=1), clients=16)


def test_disagreement_grows_with_label_skew_and_is_small_for_random_clients():
    splits = [iid(clients=40), dirichlet(clients=40, alpha=1.0), dirichlet(clients=40, alpha=0.1)]
    found = []
    for split in splits:
        batches = digits(split)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            loss, params = model_loss(mlp(64, [32], 10), batches[0])
        found.append(disagreement(loss, params, batches))
    assert found[0] < 0.15
    assert 0.2 < found[1] < 0.7 < found[2] <= 1


def test_disagreement_cannot_be_told_where_clients_have_one_row():
    """Dealing whole rows only renames such clients (graphs are rows), so by chance is as diverse as they are."""

    def loss(params, batch):
        return (batch["x"] * params["w"]).mean()

    one_row = [{"x": torch.tensor([value], dtype=torch.float64)} for value in (-1.0, 2.0, 5.0)]
    assert disagreement(loss, vector(1.0), one_row) is None
    longer = [*one_row, {"x": torch.tensor([2.0, 7.0], dtype=torch.float64)}]
    assert disagreement(loss, vector(1.0), longer) is not None


def test_is_convex():
    example = {"x": torch.randn(4, 3, dtype=torch.float64), "y": torch.tensor([0, 1, 1, 0])}
    assert is_convex(nn.Linear(3, 2), example)
    assert is_convex(nn.Linear(3, 1), {**example, "y": torch.randn(4, 1)})
    assert not is_convex(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), example)
    assert not is_convex(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), example)
    assert not is_convex(nn.Linear(3, 2), example, loss=lambda outputs, targets: outputs.sum(-1))


def test_gamma_of_linear_regression_against_least_squares():
    """Every minimum is a least-squares residual that numpy has in closed form."""
    draw = np.random.default_rng(0)
    clients, residuals, sizes = [], [], [20, 40, 60]
    for i, size in enumerate(sizes):
        x = draw.standard_normal((size, 3))
        y = x @ draw.standard_normal(3) + i + 0.1 * draw.standard_normal(size)
        clients.append({"x": torch.from_numpy(x), "y": torch.from_numpy(y)})

    def residual(x, y):
        design = np.column_stack([x, np.ones(len(x))])
        fitted = design @ np.linalg.lstsq(design, y, rcond=None)[0]
        return float(((y - fitted) ** 2).mean())

    arrays = [(c["x"].numpy(), c["y"].numpy()) for c in clients]
    residuals = [residual(x, y) for x, y in arrays]
    shared = residual(np.concatenate([x for x, _ in arrays]), np.concatenate([y for _, y in arrays]))
    expected = shared - sum(n / 120 * r for n, r in zip(sizes, residuals, strict=True))
    model = nn.Linear(3, 1)
    loss, params = model_loss(model, clients[0])
    assert is_convex(model, clients[0])
    assert optimality_gap(loss, params, clients, tolerance=1e-7) == pytest.approx(expected, rel=1e-6)


def test_gamma_of_equal_clients_is_zero_and_unreached_minima_give_none():
    draw = np.random.default_rng(1)
    client = {"x": torch.from_numpy(draw.standard_normal((30, 3))), "y": torch.from_numpy(draw.standard_normal(30))}
    loss, params = model_loss(nn.Linear(3, 1), client)
    assert optimality_gap(loss, params, [client, client]) == pytest.approx(0.0, abs=1e-8)
    assert optimality_gap(loss, params, [client, client], iterations=1) is None
