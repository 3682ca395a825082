"""Graphs on tiny files of the official layout, and the generated data sets."""

import numpy as np
import pytest

from fedtempo.data import load, louvain
from fedtempo.errors import DataError
from tests import tiny_files as tiny


def test_a_graph_client_is_one_row_per_part(tmp_path, tiny_load):
    tiny.planetoid(tmp_path)
    data = tiny_load("cora").split(louvain(clients=2), validation=0.2, test=0.2, seed=1)
    assert data.sizes("train").tolist() == [1, 1]
    batch = data.client(0)
    assert {name: tuple(t.shape) for name, t in batch.items()} == {
        "x": (1, 7, 4), "edges": (1, 12, 2), "mask": (1, 7), "y": (1, 7),
    }  # fmt: skip
    assert batch["mask"][0].tolist() == [True] * 6 + [False]
    assert sorted(map(tuple, batch["edges"][0].tolist())) == sorted(
        pair for a in range(6) for pair in ((a, (a + 1) % 6), ((a + 1) % 6, a))
    )
    labels = np.stack([data.client(0, part)["y"][0].numpy() for part in ("train", "validation", "test")])
    assert ((labels != -100).sum(axis=0)[:6] <= 1).all()  # every node in one part
    assert (labels[:, 6] == -100).all()


def test_padding_links_touch_padding_only(tmp_path, tiny_load):
    tiny.planetoid(tmp_path)
    owner = np.array([0] * 4 + [1] * 8)
    from fedtempo.data import by_owner

    data = tiny_load("cora").split(by_owner(owner), validation=0.0, test=0.0)
    for client, nodes in ((0, 4), (1, 8)):
        batch = data.client(client)
        links = batch["edges"][0]
        real = (links < nodes).all(dim=1)
        assert (links[~real] == 8).all()
        assert batch["mask"][0].sum() == nodes


def test_public_parts_keep_other_nodes_in_the_graph(tmp_path, tiny_load):
    tiny.planetoid(tmp_path)
    data = tiny_load("cora", public_parts=True).split(louvain(clients=2))
    counts = [
        int((data.columns["y"][data.positions(c, p)] >= 0).sum())
        for p in ("train", "validation", "test")
        for c in (0, 1)
    ]
    assert counts == [2, 2, 1, 1, 1, 1]
    assert data.columns["mask"].sum() == 6 * 6


def test_louvain_needs_a_graph():
    with pytest.raises(DataError, match="is not a graph"):
        load("digits").split(louvain())


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


def test_the_quadratic_has_the_papers_minimiser():
    z = load("quadratic", clients=200_000).columns["x"]
    assert z.min() >= 1
    assert z.max() <= 3
    assert abs(1 / z.mean() - 3 * (3**0.5 - 1) / (3 * 3**0.5 - 1)) < 1e-3
    assert load("quadratic", clients=7).split().sizes("train").tolist() == [1] * 7
