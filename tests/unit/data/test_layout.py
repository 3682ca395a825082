"""Which rows lie where: parts inside clients, clients held out, repairs, and rows sorted by client and part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedtempo.data import natural
from fedtempo.data.layout import choose_held_out, completed_parts, drawn_parts, layout, repaired
from fedtempo.data.parts import TEST, TRAIN, UNUSED, VALIDATION
from fedtempo.data.table import Table
from fedtempo.errors import ConfigError, DataError


def test_rows_are_sorted_by_client_and_part() -> None:
    """Client 0 owns rows 1, 2 (test) and 4; client 1 owns row 3 (validation); row 0 belongs to nobody."""
    owner = np.array([UNUSED, 0, 0, 1, 0])
    part = np.array([TRAIN, TRAIN, TEST, VALIDATION, TRAIN])
    bounds, order = layout(owner, part, 2)
    assert order is not None and order.tolist() == [1, 4, 2, 3]
    assert bounds.tolist() == [[0, 2, 2, 3], [3, 3, 4, 4]]


def test_rows_that_are_sorted_already_need_no_order() -> None:
    bounds, order = layout(np.array([0, 0, 2]), np.array([TRAIN, TEST, TRAIN]), 3)
    assert order is None
    assert bounds.tolist() == [[0, 1, 1, 2], [2, 2, 2, 2], [2, 3, 3, 3]]


def test_fractions_are_rounded_inside_each_client_and_one_row_is_left_to_train_on() -> None:
    """Ten rows: 5 to test, 3 to validate, 2 to train. Two rows: one to test. One row: none but to train."""
    owner = np.repeat([0, 1, 2], [10, 2, 1])
    part = drawn_parts(owner, 3, validation=0.3, test=0.5, seed=0)
    counts = [np.bincount(part[owner == client], minlength=3).tolist() for client in range(3)]
    assert counts == [[2, 3, 5], [1, 0, 1], [1, 0, 0]]


def test_parts_depend_on_the_seed_and_default_to_a_fifth_each() -> None:
    owner = np.zeros(10, dtype=np.int64)
    draws = [drawn_parts(owner, 1, None, None, seed) for seed in (0, 0, 1)]
    assert np.array_equal(draws[0], draws[1]) and not np.array_equal(draws[0], draws[2])
    assert np.bincount(draws[0]).tolist() == [6, 2, 2]


@pytest.mark.parametrize(("validation", "test"), [(1.0, 0.0), (-0.1, 0.0), (0.5, 0.5)])
def test_fractions_that_leave_nothing(validation: float, test: float) -> None:
    with pytest.raises(ConfigError):
        drawn_parts(np.zeros(4, dtype=np.int64), 1, validation, test, 0)


def test_rows_move_from_the_largest_clients_until_everybody_has_enough() -> None:
    owner, part = np.array([0, 0, 0, 0, 0, 1, UNUSED]), np.zeros(7, dtype=np.int8)
    mended, _ = repaired(owner, part, 3, minimum=2)
    assert np.bincount(mended[mended != UNUSED], minlength=3).tolist() == [2, 2, 2]
    assert mended[-1] == UNUSED
    assert owner.tolist() == [0, 0, 0, 0, 0, 1, UNUSED]
    with pytest.raises(DataError, match=r"min_samples must be at most 2 for 3 clients. Got 3"):
        repaired(owner, part, 3, minimum=3)


def test_rows_of_other_parts_are_left_where_they_are() -> None:
    owner, part = np.array([0, 0, 0, 1]), np.array([TRAIN, TRAIN, TEST, VALIDATION])
    mended, _ = repaired(owner, part, 2, minimum=1)
    assert mended.tolist() == [0, 1, 0, 1]


def test_new_clients_by_number_and_by_fraction() -> None:
    assert len(choose_held_out(10, 3, seed=0)) == len(choose_held_out(10, 0.3, seed=0)) == 3
    assert choose_held_out(10, 3, seed=0).tolist() == choose_held_out(10, 3, seed=0).tolist()
    assert choose_held_out(10, 0, seed=0).tolist() == []
    with pytest.raises(ConfigError, match="new_clients"):
        choose_held_out(10, 10, seed=0)


def test_clients_without_official_training_rows_are_held_out() -> None:
    columns = {"x": np.zeros((6, 1), np.float32), "y": np.zeros(6, np.int64)}
    keys, parts = np.array([0, 0, 1, 1, 2, 2]), np.array([TRAIN, TEST, TEST, TEST, TRAIN, TEST], dtype=np.int8)
    table = Table("three", columns, keys=keys, parts=parts)
    data = table.split(natural(), new_clients="untrained", validation=0.0, test=0.5)
    assert data.held_out.tolist() == [1]
    assert len(data.client(1, "train")["y"]) == 1, "a new user fine-tunes on rows of its own"
    for wrong, table_of in (("untrainde", table), ("untrained", replace(table, parts=None))):
        with pytest.raises(ConfigError, match="new_clients must be a fraction, an int, or 'untrained'"):
            table_of.split(natural(), new_clients=wrong)  # type: ignore[arg-type]


def test_new_clients_can_be_named() -> None:
    columns = {"x": np.zeros((6, 1), np.float32), "y": np.zeros(6, np.int64)}
    table = Table("three", columns, keys=np.array([0, 0, 1, 1, 2, 2]))
    data = table.split(natural(), new_clients=[2, 0], validation=0.0, test=0.5)
    assert data.held_out.tolist() == [0, 2]
    for wrong in ([3], [-1], [0, 0], [0, 1, 2], [0.5]):
        with pytest.raises(ConfigError, match="new_clients must be different clients in"):
            table.split(natural(), new_clients=wrong)  # type: ignore[arg-type]


def test_a_missing_part_is_drawn_from_training_rows_alone() -> None:
    """A third of client 0's six training rows, and none of its four test rows. Client 1 keeps its one training row."""
    owner, part = np.repeat([0, 1, UNUSED], [10, 2, 1]), np.array([TRAIN] * 6 + [TEST] * 4 + [TRAIN, TEST, TRAIN])
    found = completed_parts(owner, part, 2, validation=1 / 3, test=None, seed=0)
    assert np.bincount(found[:6], minlength=3).tolist() == [4, 2, 0]
    assert found[6:12].tolist() == [TEST] * 4 + [TRAIN, TEST]


def test_a_part_that_is_there_is_not_drawn_again() -> None:
    rule = r"test must be left out: the data has test rows of its own \(1\)\. Got 0\.5\."
    with pytest.raises(ConfigError, match=rule):
        completed_parts(np.zeros(2, dtype=np.int64), np.array([TRAIN, TEST]), 1, None, 0.5, 0)
