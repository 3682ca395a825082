"""Folders of PFLlib and LEAF: names and parts as they are, a validation part out of the training rows, nothing runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.errors import DataError


class Runs:
    """An object that calls something when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def write_pfllib(folder: Path, clients: int = 11, kind: str = "f4") -> None:
    rng = np.random.default_rng(0)
    for part, rows in (("train", 8), ("test", 4)):
        (folder / part).mkdir(parents=True)
        for client in range(clients):
            x = rng.random((rows, 1, 2, 2)).astype(kind)
            with (folder / part / f"{client}.npz").open("wb") as file:
                np.savez_compressed(file, data={"x": x, "y": np.arange(rows) % 3 + 0 * client})
    (folder / "config.json").write_text("{}")


def test_pfllibs_folder_is_read_as_it_was_written(tmp_path):
    write_pfllib(tmp_path)
    data = ft.data.from_pfllib(tmp_path).split(validation=0.25, seed=1)
    assert data.names == [str(client) for client in range(11)]  # 2 before 10
    assert {name: data.sizes(name).tolist() for name in ("train", "validation", "test")} == {
        "train": [6] * 11,
        "validation": [2] * 11,
        "test": [4] * 11,
    }
    stored = np.load(tmp_path / "test" / "10.npz", allow_pickle=True)["data"].item()
    np.testing.assert_array_equal(data.client(10, "test")["x"].numpy(), stored["x"])
    assert data.client(10, "test")["y"].tolist() == stored["y"].tolist()


@pytest.mark.parametrize("kind", ["f8", "u1"])
def test_other_types_of_numbers(tmp_path, kind):
    write_pfllib(tmp_path, 2, kind)
    assert ft.data.from_pfllib(tmp_path).columns["x"].dtype == np.dtype(kind)


def test_a_file_that_would_run_something_is_refused_and_runs_nothing(tmp_path):
    write_pfllib(tmp_path, 2)
    mark = tmp_path / "ran"
    with (tmp_path / "train" / "1.npz").open("wb") as file:
        np.savez(file, data={"x": Runs(mark), "y": np.zeros(3)})
    with pytest.raises(DataError, match=r"train/1.npz is not one of PFLlib's files"):
        ft.data.from_pfllib(tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda file: np.savez(file, x=np.zeros(3)), "must hold the array 'data'"),
        (lambda file: np.savez(file, data=np.zeros(3)), "must hold one dict of x and y"),
        (lambda file: np.savez(file, data={"x": np.zeros((3, 1))}), "it must hold x and y, and holds"),
        (
            lambda file: np.savez(file, data={"x": np.zeros((3, 7)), "y": np.zeros(3, int)}),
            "client 1 must have the",
        ),
        (lambda file: file.write(b"no zip"), "must be a zip file"),
    ],
)
def test_other_files_are_refused_in_a_line(tmp_path, spoil, said):
    write_pfllib(tmp_path, 2)
    with (tmp_path / "train" / "1.npz").open("wb") as file:
        spoil(file)
    with pytest.raises(DataError) as error:
        ft.data.from_pfllib(tmp_path)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_folder_that_is_none_of_theirs(tmp_path):
    for read in (ft.data.from_pfllib, ft.data.from_leaf):
        with pytest.raises(DataError, match="path must be a folder with the folders train and test"):
            read(tmp_path)


def test_leafs_folder_keeps_users_and_parts(tmp_path):
    for part, users in (("train", {"f2": 5, "f1": 4}), ("test", {"f1": 2, "f2": 3})):
        (tmp_path / part).mkdir()
        rows = {user: {"x": np.full((n, 3), n / 2).tolist(), "y": list(range(n))} for user, n in users.items()}
        content = {"users": list(users), "num_samples": list(users.values()), "user_data": rows}
        (tmp_path / part / "all.json").write_text(json.dumps(content))
    data = ft.data.from_leaf(tmp_path).split(validation=0.2)
    assert data.names == ["f1", "f2"]
    assert [data.sizes(part).tolist() for part in ("train", "validation", "test")] == [[3, 4], [1, 1], [2, 3]]
    assert data.client(1, "test")["x"].tolist() == [[1.5] * 3] * 3


def test_they_are_data_sets_of_experiment_files(tmp_path):
    write_pfllib(tmp_path / "mnist", 3)
    (tmp_path / "mine.toml").write_text(
        'rounds = 1\n[data]\nname = "pfllib"\npath = "mnist"\nvalidation = 0.25\n'
        '[model]\nname = "cnn"\nchannels = [2]\n[algorithm]\nname = "fedavg"\nlr = 0.1\nsteps = 1\n'
    )
    assert ft.data.load("pfllib", path=str(tmp_path / "mnist")).split().sizes("test").tolist() == [4] * 3


def test_a_part_that_is_given_stays_and_the_other_is_cut_out_of_the_training_rows():
    """PFLlib and LEAF give test rows and no validation rows; both had to be lists, or both fractions."""
    rng = np.random.default_rng(0)
    train = [(rng.random((10, 2)), rng.integers(0, 2, 10)) for _ in range(3)]
    test = [(rng.random((4, 2)), rng.integers(0, 2, 4)) for _ in range(3)]
    data = ft.data.FederatedData.from_clients(train, test=test, validation=0.2)
    assert [data.sizes(part).tolist() for part in ("train", "validation", "test")] == [[8] * 3, [2] * 3, [4] * 3]
    np.testing.assert_allclose(data.client(1, "test")["x"].numpy(), test[1][0], rtol=1e-6)


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_an_index_says_which_rows_each_client_has(tmp_path, ending):
    rows = {"anna": [0, 5, 7], "ben": [1, 2, 3, 4]}
    file = tmp_path / f"index.{ending}"
    if ending == "json":
        file.write_text(json.dumps(rows))
    else:
        np.savez(file, **rows)
    table = ft.data.load("digits")
    data = table.split(ft.data.by_index(file), validation=0.0, test=0.0)
    assert list(data.names) == ["anna", "ben"]
    assert data.client(0)["y"].tolist() == table.columns["y"][[0, 5, 7]].tolist()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"a": [0, 1], "b": [1]}, "a row must belong to one client, once. Got row 1 again, for client b."),
        ({"a": [0, 3, 3]}, "a row must belong to one client, once. Got row 3 again, for client a."),
        ({"a": [99999]}, "client a must have rows in [0, 1796]. Got 99999."),
        ({"a": [0.5]}, "the rows of client a must be a list of row numbers from 0. Got [0.5]."),
        ({}, "clients must be rows of one or more clients. Got {}."),
    ],
)
def test_an_index_that_cannot_be_is_refused(tmp_path, rows, said):
    file = tmp_path / "index.json"
    file.write_text(json.dumps(rows))
    with pytest.raises(ft.FedTempoError) as error:
        ft.data.load("digits").split(ft.data.by_index(file))
    assert str(error.value) == said


def test_an_index_that_is_no_index(tmp_path):
    file = tmp_path / "index.json"
    file.write_text("[1, 2]")
    with pytest.raises(DataError, match=r"index.json must be JSON of the form \{client: \[rows\]\}. Got a list."):
        ft.data.by_index(file)
