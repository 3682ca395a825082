"""FEMNIST, on tiny files of LEAF's layout."""

import numpy as np

from fedtempo.data import natural
from tests import tiny_files as tiny


def test_femnist_from_leaf_folders(tmp_path, tiny_load):
    tiny.femnist_json(tmp_path)
    table = tiny_load("femnist")
    data = table.split()
    assert list(data.names) == ["a", "b"]
    assert data.sizes("train").tolist() == [6, 4]
    assert data.sizes("test").tolist() == [2, 1]
    everybody = tiny_load("femnist", writers="all").split(natural(), validation=0.2, test=0.2, new_clients=1)
    assert len(everybody) == 3
    assert len(everybody.held_out) == 1


def test_leaf_pixels_come_back_exactly(tmp_path, tiny_load):
    tiny.femnist_json(tmp_path)
    expected = np.random.default_rng(0).integers(0, 256, (6, 784))
    np.testing.assert_array_equal(tiny_load("femnist").columns["x"][:0].shape, (0, 1, 28, 28))
    rows = tiny_load("femnist").split()
    np.testing.assert_array_equal(rows.columns["x"][rows.positions(0)].reshape(6, -1), expected)
