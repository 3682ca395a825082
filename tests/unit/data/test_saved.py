"""A division is saved with a hash and comes back as it was."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo.data import (
    FederatedData,
    Table,
    classes_per_client,
    dirichlet,
    iid,
    load,
    load_division,
    natural,
    quantity_skew,
    save_division,
    shards,
)
from fedtempo.errors import DataError

SPLITS = [
    iid(clients=7),
    dirichlet(clients=7, alpha=0.5),
    dirichlet(clients=7, alpha=0.5, equal=True),
    classes_per_client(clients=10, classes=2),
    shards(clients=10),
    quantity_skew(clients=7, alpha=1.0),
]


@pytest.mark.parametrize("relabel", [False, True])
@pytest.mark.parametrize("split", SPLITS, ids=repr)
def test_a_saved_division_comes_back(tmp_path, split, relabel):
    table = load("digits")
    split = classes_per_client(clients=10, classes=2) if relabel else split
    data = table.split(split, seed=3, new_clients=2, min_samples=1, relabel=relabel)
    digest = save_division(data, tmp_path / "division.npz")
    again = load_division(table, tmp_path / "division.npz")
    assert again.digest() == digest == data.digest()
    for client in range(len(data)):
        for name, values in data.client(client).items():
            np.testing.assert_array_equal(values, again.client(client)[name])


def test_names_from_an_array_are_saved(tmp_path):
    rows = np.arange(6.0)[:, None]
    names = np.array(["ann", "bo"])
    data = FederatedData.from_clients([(rows[:4],), (rows[4:],)], names=names)
    for each in (data, replace(data, names=names)):
        save_division(each, tmp_path / "division.npz")
        assert load_division(Table("rows", {"x": rows}), tmp_path / "division.npz").names == ["ann", "bo"]


def test_a_division_of_other_data_or_an_altered_one_is_refused(tmp_path):
    data = load("synthetic", clients=3).split(natural())
    path = tmp_path / "division.npz"
    save_division(data, path)
    assert load_division(load("synthetic", clients=3), path).names == ["0", "1", "2"]
    with pytest.raises(DataError, match=r"must (divide|give the division)"):
        load_division(load("digits"), path)
    arrays = dict(np.load(path))
    arrays["order"] = arrays["order"][::-1]
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=r"must give the division [0-9a-f]{64}"):
        load_division(load("synthetic", clients=3), path)
