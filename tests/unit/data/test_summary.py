"""Divisions described and drawn."""

import numpy as np
import pytest

from fedtempo.data import (
    FederatedData,
    Table,
    classes_per_client,
    describe,
    load,
    picture,
)
from fedtempo.data.summary import client_by_label, divided_by_default, heat_map
from fedtempo.errors import OutputError
from tests import tiny_files as tiny


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


def test_one_truth_value_a_row_is_a_label_of_two():
    rows = np.zeros((4, 1))
    data = FederatedData.from_clients([(rows, np.array([True, False, True, True])), (rows, np.array([False] * 4))])
    assert client_by_label(data).tolist() == [[1, 3], [4, 0]]
    assert describe(data)["labels"] == [5, 3]


def test_the_default_division_uses_natural_clients_where_there_are_any():
    assert "natural" in divided_by_default(load("synthetic")).description
    assert "dirichlet" in divided_by_default(load("digits")).description


def test_clients_that_only_a_users_test_part_has_are_new_ones():
    keys, parts = np.array([0, 0, 1]), np.array([0, 2, 2])
    table = Table("own", {"x": np.zeros((3, 1)), "y": np.arange(3)}, keys, parts, own_parts=True)
    data = divided_by_default(table)
    assert data.held_out.tolist() == [1] and data.sizes("test").tolist() == [1, 1]
