"""Batches: every row once an epoch, a short last batch, and no client's batches depend on the others'."""

from __future__ import annotations

import numpy as np
import pytest

from fedtempo.data.batches import Batching, BatchRows
from fedtempo.errors import ConfigError
from fedtempo.randomness import client_keys


def rows(clients: list[int], sizes: list[int], batching: Batching, round_number: int = 0) -> BatchRows:
    keys = client_keys(0, np.array(clients), "batches", round_number)
    return BatchRows(batching, keys, np.array(sizes))


def test_an_epoch_has_every_row_once() -> None:
    drawn = rows([3], [10], Batching(4))
    epoch = [drawn.at(step) for step in range(3)]
    assert [int(count[0]) for _, count in epoch] == [4, 4, 2]
    seen = np.concatenate([local[0, : int(count[0])] for local, count in epoch])
    assert sorted(seen.tolist()) == list(range(10))
    following = np.concatenate([drawn.at(step)[0][0, : int(drawn.at(step)[1][0])] for step in range(3, 6)])
    assert sorted(following.tolist()) == list(range(10))
    assert following.tolist() != seen.tolist()


@pytest.mark.parametrize("batching", [Batching(4), Batching(4, "in_order"), Batching(4, "replace"), Batching(None)])
def test_a_clients_batches_do_not_depend_on_the_others(batching: Batching) -> None:
    together = rows([5, 3, 9], [17, 10, 3], batching)
    alone = rows([3], [10], batching)
    for step in range(7):
        local, counts = together.at(step)
        mine, count = alone.at(step)
        assert counts[1] == count[0] == batching.length(10, step)
        assert local[1, : counts[1]].tolist() == mine[0, : count[0]].tolist()


def test_batches_in_order_follow_the_rows() -> None:
    drawn = rows([3, 5], [10, 5], Batching(4, "in_order"))
    first = [drawn.at(step)[0][0, : int(drawn.at(step)[1][0])].tolist() for step in range(4)]
    assert first == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2, 3]]
    assert drawn.of_first(2).tolist() == [8, 9]


def test_padding_repeats_the_first_row() -> None:
    local, counts = rows([0, 1], [2, 9], Batching(4)).at(0)
    assert counts.tolist() == [2, 4]
    assert (local[0, 2:] == local[0, 0]).all()


def test_rounds_and_clients_draw_differently() -> None:
    first = rows([0], [30], Batching(8)).at(0)[0].tolist()
    assert first != rows([0], [30], Batching(8), round_number=1).at(0)[0].tolist()
    assert first != rows([1], [30], Batching(8)).at(0)[0].tolist()


def test_sampling_with_replacement_is_uniform() -> None:
    """100,000 draws from five rows: each within 4 standard deviations of 20,000."""
    drawn = np.concatenate([rows([2], [5], Batching(1000, "replace")).at(step)[0][0] for step in range(100)])
    counts = np.bincount(drawn, minlength=5)
    assert (abs(counts - 20_000) < 4 * np.sqrt(100_000 * 0.2 * 0.8)).all()


def test_every_order_of_three_rows_is_as_likely() -> None:
    keys = client_keys(1, np.arange(60_000), "batches", 0)
    orders = BatchRows(Batching(3), keys, np.full(60_000, 3)).at(0)[0]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert (abs(counts - 10_000) < 4 * np.sqrt(60_000 / 6 * 5 / 6)).all()


@pytest.mark.parametrize(
    ("size", "mode"), [(0, "epochs"), (-1, "epochs"), (True, "epochs"), (4, "epoch"), (2.5, "epochs")]
)
def test_wrong_settings_are_refused(size: object, mode: str) -> None:
    with pytest.raises(ConfigError):
        Batching(size, mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("batching", [Batching(4), Batching(4, "replace"), Batching(None)])
def test_one_client_draws_what_it_draws_in_a_group(batching: Batching) -> None:
    clients, sizes = np.arange(5), np.array([7, 12, 4, 9, 1])
    group = BatchRows(batching, client_keys(0, clients, "batches", 2), sizes)
    for client, size in zip(clients, sizes, strict=True):
        alone = BatchRows(batching, client_keys(0, clients[client : client + 1], "batches", 2), np.array([size]))
        for step in range(7):
            rows, counts = group.at(step)
            assert alone.of_first(step).tolist() == rows[client, : counts[client]].tolist()
