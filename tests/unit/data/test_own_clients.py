"""Clients given one by one: arrays, tensors and dicts become one table, client after client."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from fedtempo.data import FederatedData
from fedtempo.data.own_clients import as_columns, as_one_table
from fedtempo.errors import DataError

FIRST, SECOND = ([[1.0], [2.0], [3.0]], [0, 1, 0]), (torch.tensor([[4.0]]), torch.tensor([1]))


def test_pairs_of_lists_and_tensors() -> None:
    columns, bounds, order = as_one_table([FIRST, SECOND], 0.0, 0.0, seed=0)
    assert columns["x"].ravel().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert columns["y"].tolist() == [0, 1, 0, 1]
    assert bounds.tolist() == [[0, 3, 3, 3], [3, 4, 4, 4]]
    assert order is None


def test_parts_given_as_lists_follow_the_training_rows_of_their_client() -> None:
    columns, bounds, _ = as_one_table([FIRST, SECOND], [SECOND, SECOND], [SECOND, FIRST], seed=0)
    assert bounds.tolist() == [[0, 3, 4, 5], [5, 6, 7, 10]]
    assert columns["x"].ravel().tolist() == [1, 2, 3, 4, 4, 4, 4, 1, 2, 3]


def test_fractions_are_drawn_by_the_seed() -> None:
    ten = (np.arange(10.0)[:, None], np.zeros(10, dtype=np.int64))
    orders = []
    for seed in (0, 0, 1):
        _, bounds, order = as_one_table([ten], 0.2, 0.3, seed)
        assert bounds.tolist() == [[0, 5, 7, 10]]
        assert order is not None and sorted(order.tolist()) == list(range(10))
        orders.append(order.tolist())
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("empty", [([], []), (np.zeros((0, 1)), np.array([]))])
def test_an_empty_list_does_not_make_numbers_of_labels(empty: tuple[object, object]) -> None:
    columns, bounds, _ = as_one_table([FIRST, SECOND], [empty, SECOND], [SECOND, empty], seed=0)
    assert columns["y"].dtype == np.int64 and columns["x"].shape == (6, 1)
    assert bounds.tolist() == [[0, 3, 3, 4], [4, 5, 6, 6]]
    columns, bounds, _ = as_one_table([empty, FIRST], 0.0, 0.0, seed=0)
    assert columns["y"].dtype == np.int64 and bounds.tolist() == [[0, 0, 0, 0], [0, 3, 3, 3]]


def test_dicts_keep_their_names() -> None:
    columns = as_columns({"age": [1, 2], "income": np.array([3.0, 4.0])})
    assert {name: values.tolist() for name, values in columns.items()} == {"age": [1, 2], "income": [3.0, 4.0]}
    assert list(as_columns(([[1.0]],))) == ["x"]


@pytest.mark.parametrize(
    ("clients", "parts", "message"),
    [
        ([], {}, "clients must hold at least one client"),
        ({"a": FIRST}, {}, "clients must be a list with one entry per client. Got dict"),
        ([FIRST], {"test": [FIRST, FIRST]}, "test must have one entry per client, 1. Got 2"),
        ([([[1.0]], [0, 1])], {}, "columns of client 0 must have equal lengths. Got {'x': 1, 'y': 2}"),
        ([FIRST, ([[1.0, 2.0]], [0])], {}, "'x' must have rows of one shape in all clients. Got (1,) and (2,)"),
        ([FIRST, {"x": [[1.0]]}], {}, "must have the same columns, ['x', 'y']. Got ['x']"),
        ([(["text"], [0])], {}, "client 0, column 'x', must be numbers in an array or tensor"),
        ([([[1.0]], ["yes"])], {}, "Got text, such as 'yes': number the texts of all clients at once, by np.unique("),
        ([([[1.0]], [b"yes"])], {}, "column 'y', must be numbers in an array or tensor. Got |S3"),
    ],
)
def test_what_cannot_be_a_table_is_named(clients: list[object], parts: dict[str, object], message: str) -> None:
    given = {"validation": 0.0, "test": 0.0, **parts}
    with pytest.raises(DataError) as caught:
        as_one_table(clients, given["validation"], given["test"], 0)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([TensorDataset(torch.zeros(4, 2), torch.zeros(4))] * 2, "Got TensorDataset: ft.data.from_torch"),
        ({"A": ([[1.0]], [0]), "B": ([[2.0]], [1])}, r"Got dict: give list\(clients.values\(\)\), and names="),
        ([(np.ma.masked_equal([1.0, -999.0], -999.0), [0, 1])] * 2, "'x', must have a number .* Got a masked array"),
    ],
)
def test_what_comes_through_another_door_is_shown_it(clients: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FederatedData.from_clients(clients)  # type: ignore[arg-type]


def test_a_frame_per_client_is_shown_the_way_for_frames() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    with pytest.raises(DataError, match=r"Got DataFrame: ft.data.from_frame takes one frame of all clients"):
        FederatedData.from_clients([pandas.DataFrame({"x": [1.0], "y": [0]})])
