"""Federated data: a client is a slice; parts, normalisation, digests, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedtempo.data import FederatedData
from fedtempo.errors import DataError

X = np.arange(12, dtype=np.float64).reshape(6, 2)
Y = np.array([0, 1, 2, 1, 0, 2])
BOUNDS = np.array([[0, 2, 3, 4], [4, 5, 5, 6]])
"""Client 0: rows 0 and 1 to train on, 2 to validate, 3 to test. Client 1: row 4 to train on, 5 to test."""


def data(**changes: object) -> FederatedData:
    return FederatedData(**{"columns": {"x": X, "y": Y}, "bounds": BOUNDS, **changes})  # type: ignore[arg-type]


def test_parts_of_clients_by_hand() -> None:
    parts = ("train", "validation", "test")
    assert [data().sizes(part).tolist() for part in parts] == [[2, 1], [1, 0], [1, 1]]
    assert [data().client(0, part)["y"].tolist() for part in parts] == [[0, 1], [2], [1]]
    assert data().client(1, "validation")["x"].shape == (0, 2)


def test_an_order_maps_positions_to_rows() -> None:
    shuffled = data(order=np.array([5, 3, 1, 0, 2, 4]))
    assert shuffled.positions(0).tolist() == [5, 3]
    assert shuffled.client(0)["x"].tolist() == X[[5, 3]].tolist()
    assert shuffled.client(1, "test")["y"].tolist() == [int(Y[4])]


def test_types_of_tensors() -> None:
    column = {"x": X, "y": Y.astype(np.uint8), "mask": Y > 0}
    batch = data(columns=column).client(0, dtype=torch.float32)
    assert {name: t.dtype for name, t in batch.items()} == {
        "x": torch.float32,
        "y": torch.int64,
        "mask": torch.bool,
    }
    batch["x"].zero_()
    assert X[0, 1] == 1.0  # the columns are never written to


def test_bytes_are_brought_to_zero_mean_as_they_are_read() -> None:
    pixels = np.array([[0], [255], [51], [0], [0], [0]], dtype=np.uint8)
    batch = data(columns={"x": pixels}, normalise={"x": (51.0, 102.0)}).client(0)
    assert batch["x"].tolist() == [[-0.5], [2.0]]


def test_taken_rows_have_the_shape_of_their_numbers() -> None:
    taken = data().take(np.array([[0, 5], [2, 2]]))
    assert taken["x"].shape == (2, 2, 2)
    assert taken["y"].tolist() == [[0, 2], [2, 2]]


def test_labels_are_counted_by_client() -> None:
    assert data().label_counts().tolist() == [[1, 1, 0], [1, 0, 0]]
    assert data().label_counts("test").tolist() == [[0, 1, 0], [0, 0, 1]]


def test_new_clients_do_not_train() -> None:
    held = data(held_out=np.array([0]))
    assert held.clients.tolist() == [1]
    assert "1 clients, 1 new clients" in repr(held)


def test_the_digest_knows_who_owns_what() -> None:
    digests = {
        data().digest(),
        data(held_out=np.array([0])).digest(),
        data(order=np.arange(6)).digest(),
        data(bounds=np.array([[0, 1, 3, 4], [4, 5, 5, 6]])).digest(),
        data(columns={"x": X.astype(np.float32), "y": Y}).digest(),
        data(outputs=np.array([3, 3])).digest(),
    }
    assert len(digests) == 6
    assert data().digest() == data(columns={"y": Y, "x": X}).digest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bounds": np.array([[0, 0, 3, 4], [4, 5, 5, 6]])}, r"client 0 has no training data \(1 such clients\)"),
        (
            {"columns": {"x": np.where(X == 7, np.nan, X)}},
            "'x' must be finite. Got NaN or infinity in row 0 of the test rows of client 0",
        ),
    ],
)
def test_data_that_cannot_be_trained_on(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        data(**changes).check()


@pytest.mark.parametrize("name", ["_rows", "_key", "_share", "_mine"])
def test_a_column_whose_name_is_ours_is_refused(name: str) -> None:
    """`_rows` was taken for the rows that count, and `_mine` never came to the model."""
    with pytest.raises(DataError, match=f"must not begin with an underscore, .* Got '{name}'"):
        data(columns={"x": X, "y": Y, name: Y}).check()


def test_a_client_or_part_that_is_not_there() -> None:
    with pytest.raises(DataError, match=r"client must be an int in \[0, 2\). Got 2"):
        data().client(2)
    with pytest.raises(DataError, match=r"part must be one of train, validation, test. Got 'trian'"):
        data().sizes("trian")
    assert (data(names=["Ann", "Bo"]).name_of(1), data().name_of(1)) == ("1 (Bo)", "1")
