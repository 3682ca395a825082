"""The synthetic data set follows alpha and beta."""

import numpy as np

from fedtempo.data import load


def test_synthetic_follows_alpha_and_beta():
    table = load("synthetic", alpha=1.0, beta=1.0, clients=20, seed=3)
    data = table.split()
    assert len(data) == 20
    assert table.columns["x"].shape[1] == 60
    middles = np.stack([table.columns["x"][table.keys == k].mean(axis=0) for k in range(20)])
    alike = load("synthetic", clients=20, iid=True, seed=3)
    same = np.stack([alike.columns["x"][alike.keys == k].mean(axis=0) for k in range(20)])
    assert middles.std(axis=0).mean() > 5 * same.std(axis=0).mean()
    np.testing.assert_array_equal(
        table.columns["x"], load("synthetic", alpha=1.0, beta=1.0, clients=20, seed=3).columns["x"]
    )
    # Feature j has variance j^-1.2.
    x = alike.columns["x"]
    np.testing.assert_allclose(x.std(axis=0)[[0, 9, 59]], np.array([1, 10, 60]) ** -0.6, rtol=0.1)
