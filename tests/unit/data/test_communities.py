"""Louvain: graphs split into communities."""

import numpy as np
import pytest

from fedtempo.data import (
    load,
    load_division,
    louvain,
)
from fedtempo.data.communities import communities
from fedtempo.errors import DataError
from tests import tiny_files as tiny


def test_louvain_needs_a_graph():
    with pytest.raises(DataError, match="is not a graph"):
        load("digits").split(louvain())


def test_louvain_finds_the_two_rings_and_bundles_to_equal_sizes(tmp_path, elsewhere):
    tiny.planetoid(tmp_path)
    table = load("cora", data_dir=tmp_path, verify=False)
    with pytest.raises(DataError, match="is changed after its split"):
        load_division(table, tmp_path / "x.npz")
    owner = louvain(clients=2).assign(table, seed=0)
    assert len(set(owner[:6])) == 1
    assert len(set(owner[6:])) == 1
    np.testing.assert_array_equal(owner, louvain(clients=2).assign(table, seed=0))
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 200, (400, 2))
    sizes = np.bincount(communities(edges, 200, 5, seed=1), minlength=5)
    assert sizes.sum() == 200
    assert sizes.max() - sizes.min() <= 20
    alone = communities(edges, 200, None, seed=1)
    assert (np.diff(np.bincount(alone)) <= 0).all()
