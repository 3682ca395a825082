"""Splits are functions of their seed; divisions are saved with a hash, described and drawn."""

import numpy as np
import pytest
import tiny_files as tiny

from fedtempo.data import (
    classes_per_client,
    describe,
    dirichlet,
    iid,
    load,
    load_division,
    louvain,
    natural,
    picture,
    quantity_skew,
    save_division,
    shards,
)
from fedtempo.data.communities import communities
from fedtempo.data.summary import client_by_label, divided_by_default, heat_map
from fedtempo.errors import DataError, OutputError

SPLITS = [
    iid(clients=7),
    dirichlet(clients=7, alpha=0.5),
    dirichlet(clients=7, alpha=0.5, equal=True),
    classes_per_client(clients=10, classes=2),
    shards(clients=10),
    quantity_skew(clients=7, alpha=1.0),
]


@pytest.mark.parametrize("split", SPLITS, ids=repr)
def test_a_split_is_a_function_of_its_seed(split):
    table = load("digits")
    first = table.split(split, seed=3, min_samples=1)
    assert first.digest() == table.split(split, seed=3, min_samples=1).digest()
    assert first.digest() != table.split(split, seed=4, min_samples=1).digest()
    rows = np.concatenate([first.positions(c, p) for c in range(len(first)) for p in ("train", "validation", "test")])
    assert len(np.unique(rows)) == len(rows)


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


def test_describe_and_draw(tmp_path):
    data = load("digits").split(classes_per_client(clients=5, classes=2), new_clients=1, seed=0)
    found = describe(data)
    assert found["clients"] == 4
    assert found["new_clients"] == 1
    assert sum(found["rows"].values()) == sum(found["labels"]) == 1797
    counts = client_by_label(data)
    assert ((counts > 0).sum(axis=1) == 2).all()
    text = picture(data, tmp_path / "picture.html").read_text(encoding="utf-8")
    assert "classes_per_client" in text
    with pytest.raises(OutputError, match="picture must be a path that can be written"):
        picture(data, tmp_path)


def test_a_picture_of_many_clients_and_labels_stays_small():
    drawn = heat_map(np.ones((1000, 300), dtype=np.int64)).plain.split("\n")
    assert len(drawn) == 24
    assert all(len(line) == 64 for line in drawn)


def test_labels_of_sequences_and_of_several_at_once(tmp_path, elsewhere):
    tiny.shakespeare(tmp_path)
    tiny.stackoverflow(tmp_path)
    sequences = load("shakespeare", data_dir=tmp_path, verify=False, window=20).split()
    assert client_by_label(sequences).sum() == sequences.columns["y"].size
    several = load("stackoverflow", data_dir=tmp_path, verify=False, tags=3).split()
    assert client_by_label(several).sum() == several.columns["y"].sum()
    assert client_by_label(load("quadratic", clients=4).split()).shape == (4, 0)


def test_the_default_division_uses_natural_clients_where_there_are_any():
    assert "natural" in divided_by_default(load("synthetic")).description
    assert "dirichlet" in divided_by_default(load("digits")).description
