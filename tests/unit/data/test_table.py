"""Tables: natural clients, official parts, and classes numbered client by client."""

from __future__ import annotations

import numpy as np
import pytest

from fedtempo.data import Table, natural
from fedtempo.data.parts import TEST, TRAIN
from fedtempo.errors import ConfigError, DataError
from fedtempo.tasks import IGNORED

KEYS = np.array(["bo", "ann", "bo", "cy", "bo", "ann"])
PLAIN = {"x": np.arange(6.0)[:, None], "y": np.array([5, 7, 5, 5, 9, 7])}


def table(**changes: object) -> Table:
    return Table(**{"name": "six", "columns": PLAIN, "keys": KEYS, **changes})  # type: ignore[arg-type]


def test_a_table_prints_in_one_line() -> None:
    assert repr(table()) == "Table(six: 6 rows of x (1,), y, 3 natural clients)"
    assert repr(table(keys=None)) == "Table(six: 6 rows of x (1,), y)"


def test_natural_clients_are_sorted_by_name() -> None:
    data = table().split(validation=0.0, test=0.0)
    assert list(data.names or ()) == ["ann", "bo", "cy"]
    assert [data.positions(client).tolist() for client in range(3)] == [[1, 5], [0, 2, 4], [3]]


def test_the_largest_clients_may_be_chosen() -> None:
    data = table().split(natural(2), validation=0.0, test=0.0)
    assert list(data.names or ()) == ["ann", "bo"]
    assert list(table().split(natural(min_rows=3), validation=0.0, test=0.0).names or ()) == ["bo"]


def test_more_natural_clients_than_there_are_is_named() -> None:
    with pytest.raises(ConfigError, match=r"clients must be an int in \[1, 2\] \(the natural clients with .* Got 5\."):
        table().split(natural(5, min_rows=2))
    with pytest.raises(ConfigError, match=r"min_rows must be an int in \[1, 3\] .* Got 4\."):
        table().split(natural(min_rows=4))


def test_clients_keep_their_names_where_rows_are_moved_to_repair_small_ones() -> None:
    """Cy has one row, and gets one of Bo's, which comes first."""
    keys = np.array(["bo", "bo", "bo", "bo", "cy", "ann", "ann"])
    columns = {"x": np.arange(7.0)[:, None], "y": np.zeros(7, dtype=np.int64)}
    data = table(keys=keys, columns=columns).split(validation=0.0, test=0.0, min_samples=2)
    assert list(data.names or ()) == ["ann", "bo", "cy"]
    assert [data.positions(client).tolist() for client in range(3)] == [[5, 6], [0, 1, 2], [3, 4]]


def test_official_parts_are_kept_unless_fractions_are_given() -> None:
    parts = np.array([TRAIN, TRAIN, TRAIN, TRAIN, TEST, TEST])
    kept = table(parts=parts).split()
    assert kept.sizes("train").tolist() == [1, 2, 1] and kept.sizes("test").tolist() == [1, 1, 0]
    assert table(parts=parts).split(validation=0.0, test=0.0).sizes("train").tolist() == [2, 3, 1]


def test_each_clients_classes_are_numbered_from_zero() -> None:
    """Ann has class 7 alone; Bo has 5 and 9; Cy has 5."""
    data = table().split(validation=0.0, test=0.0, relabel=True)
    assert data.outputs is not None and data.outputs.tolist() == [1, 2, 1]
    assert [data.client(client)["y"].tolist() for client in range(3)] == [[0, 0], [0, 0, 1], [0]]
    assert PLAIN["y"].tolist() == [5, 7, 5, 5, 9, 7]


def test_ignored_labels_are_no_class_of_a_client() -> None:
    """Ann has class 7 alone; Bo's first row is ignored. Then Cy's only row is ignored too."""
    columns = {**PLAIN, "y": np.array([IGNORED, 7, 5, 5, 9, 7])}
    data = table(columns=columns).split(validation=0.0, test=0.0, relabel=True)
    assert data.outputs is not None and data.outputs.tolist() == [1, 2, 1]
    assert [data.client(client)["y"].tolist() for client in range(3)] == [[0, 0], [IGNORED, 0, 1], [0]]
    columns["y"] = np.array([IGNORED, 7, 5, IGNORED, 9, 7])
    with pytest.raises(DataError, match=r"client 2 \(cy\) has no training row with a label"):
        table(columns=columns).split(validation=0.0, test=0.0, relabel=True)


def test_a_class_that_is_never_trained_on_cannot_be_renumbered() -> None:
    parts = np.array([TRAIN, TRAIN, TRAIN, TRAIN, TEST, TEST])
    with pytest.raises(DataError, match=r"client 1 \(bo\) has a test row of a class that it never trains on"):
        table(parts=parts).split(relabel=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": {"x": np.zeros((0, 2))}}, "'six' has no rows"),
        ({"columns": {"x": np.zeros(3), "y": np.zeros(2)}}, "must have equal lengths"),
    ],
)
def test_tables_that_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        table(**changes)


def test_what_a_split_needs_is_named() -> None:
    with pytest.raises(DataError, match="has no natural clients"):
        table(keys=None).split()
    with pytest.raises(DataError, match="has no class labels to split by"):
        table(columns={"x": np.zeros(6)}).labels  # noqa: B018
