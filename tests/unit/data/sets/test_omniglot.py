"""Omniglot, on tiny files of the official layout: labels, rotations and what is trained on."""

import numpy as np
import pytest

from tests import tiny_files as tiny
from tests.tiny_files import owned


def test_omniglot_is_inverted_and_keyed_by_alphabet(tmp_path, tiny_load):
    tiny.omniglot(tmp_path)
    table = tiny_load("omniglot")
    assert table.columns["x"].shape == (180, 1, 28, 28)
    assert np.median(table.columns["x"]) == 0
    assert table.columns["x"].max() > 200
    data = table.split(relabel=True)
    assert list(data.names) == ["Alpha", "Beta", "Gamma"]
    assert data.outputs.tolist() == [2, 3, 4]
    assert data.sizes("train").tolist() == [30, 45, 60]
    assert data.sizes("test").tolist() == [10, 15, 20]
    inside = tiny_load("omniglot", labels="alphabet")
    assert [int(inside.columns["y"][inside.keys == a].max()) for a in range(3)] == [1, 2, 3]
    np.testing.assert_array_equal(np.bincount(table.columns["y"]), 20)


@pytest.mark.parametrize("fractions", [{}, {"test": 0.3, "validation": 0.2}])
def test_no_rotated_copy_of_a_test_image_is_trained_on(tmp_path, tiny_load, fractions):
    tiny.omniglot(tmp_path)
    plain = tiny_load("omniglot").split(**fractions)
    data = tiny_load("omniglot", rotations=True).split(**fractions)
    np.testing.assert_array_equal(data.bounds, plain.bounds * 4)
    assert len(owned(data)) == 4 * 180
    for client in range(3):
        for part in ("train", "validation", "test"):
            x = np.asarray(plain.columns["x"])[plain.positions(client, part)]
            wanted = np.concatenate([np.rot90(x, turn, axes=(2, 3)) for turn in range(4)])
            rows = data.positions(client, part)
            np.testing.assert_array_equal(data.columns["x"][rows], wanted)
            np.testing.assert_array_equal(data.columns["y"][rows], np.tile(plain.columns["y"][rows[: len(x)]], 4))
