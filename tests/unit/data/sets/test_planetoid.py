"""Citation graphs, on tiny files of the official layout."""

import numpy as np

from fedtempo.data import louvain
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
