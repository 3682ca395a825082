"""Splits and parts: nobody shares a row, sizes are as promised, repairs work, errors name the client."""

from __future__ import annotations

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.data import (
    SPLITS,
    Split,
    classes_per_client,
    dirichlet,
    iid,
    natural,
    quantity_skew,
    shards,
)
from fedtempo.errors import ConfigError, DataError

TABLE = ft.data.load("digits")
ALL: dict[str, Split] = {
    "iid": iid(10),
    "dirichlet": dirichlet(10, 0.5),
    "dirichlet equal": dirichlet(10, 0.3, equal=True),
    "classes": classes_per_client(10, 2),
    "shards": shards(10),
    "quantity": quantity_skew(10, 5.0),
}


@pytest.mark.parametrize("name", ALL)
def test_no_row_has_two_owners_and_parts_do_not_meet(name: str) -> None:
    data = TABLE.split(ALL[name], seed=3, min_samples=2)
    rows = [data.positions(c, part) for c in range(10) for part in ("train", "validation", "test")]
    everything = np.concatenate(rows)
    assert len(np.unique(everything)) == len(everything) <= len(TABLE)
    if name not in ("dirichlet equal",):
        assert len(everything) == len(TABLE)


@pytest.mark.parametrize("name", ALL)
def test_a_seed_decides(name: str) -> None:
    assert (
        TABLE.split(ALL[name], seed=3, min_samples=1).digest() == TABLE.split(ALL[name], seed=3, min_samples=1).digest()
    )
    assert (
        TABLE.split(ALL[name], seed=3, min_samples=1).digest() != TABLE.split(ALL[name], seed=4, min_samples=1).digest()
    )


def test_equal_dirichlet_has_equal_sizes() -> None:
    data = TABLE.split(dirichlet(10, 0.3, equal=True), validation=0.0, test=0.0)
    assert set(data.sizes("train").tolist()) == {179}


def test_classes_per_client() -> None:
    data = TABLE.split(classes_per_client(20, 2), seed=0)
    assert ((data.label_counts() > 0).sum(axis=1) == 2).all()


def test_relabelled_clients_count_their_own_classes_from_zero() -> None:
    data = TABLE.split(classes_per_client(20, 2), seed=0, relabel=True)
    assert data.outputs is not None
    assert set(data.outputs.tolist()) == {2}
    for client in range(20):
        assert set(data.client(client, "test")["y"].tolist()) <= {0, 1}


def test_smaller_alpha_is_more_skewed() -> None:
    def largest_share(alpha: float) -> float:
        counts = TABLE.split(dirichlet(10, alpha), min_samples=5).label_counts()
        return float((counts.max(1) / counts.sum(1)).mean())

    assert largest_share(0.1) > largest_share(1.0) > largest_share(100.0)


def test_fractions_inside_a_client() -> None:
    data = TABLE.split(iid(10), validation=0.2, test=0.3)
    total = sum(data.sizes(p) for p in ("train", "validation", "test"))
    assert (abs(data.sizes("test") - 0.3 * total) <= 0.5).all()
    assert (abs(data.sizes("validation") - 0.2 * total) <= 0.5).all()


def test_new_clients_are_held_out() -> None:
    data = TABLE.split(iid(10), new_clients=0.3, seed=5)
    assert len(data.held_out) == 3
    assert sorted([*data.clients, *data.held_out]) == list(range(10))


def test_natural_clients_keep_their_names() -> None:
    keys = np.array(["b", "a", "b", "c", "a", "b"])
    table = ft.data.Table("letters", {"x": np.arange(6.0)[:, None], "y": np.arange(6) % 2}, keys=keys)
    data = table.split(natural(min_rows=2), validation=0.0, test=0.0)
    assert data.names == ["a", "b"]
    assert data.client(1)["x"].flatten().tolist() == [0.0, 2.0, 5.0]


def test_an_empty_client_is_an_error_that_names_it_or_is_repaired() -> None:
    table = ft.data.Table("tiny", {"x": np.zeros((6, 1)), "y": np.zeros(6, dtype=np.int64)})
    lonely = ft.data.by_owner(np.array([0, 0, 0, 0, 2, 2]))
    with pytest.raises(DataError, match="client 1 has no training data"):
        table.split(lonely)
    repaired = table.split(lonely, min_samples=1, validation=0.0, test=0.0)
    assert repaired.sizes("train").tolist() == [3, 1, 2]


def test_from_clients_keeps_rows_and_order() -> None:
    rows = [(np.array([[1.0], [2.0]]), np.array([0, 1])), (np.array([[3.0]]), np.array([1]))]
    data = ft.data.FederatedData.from_clients(rows)
    assert data.client(0)["x"].flatten().tolist() == [1.0, 2.0]
    assert data.client(1)["y"].tolist() == [1]
    assert data.sizes("test").tolist() == [0, 0]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"validation": 1.0}, ConfigError),
        ({"validation": 0.6, "test": 0.5}, ConfigError),
        ({"new_clients": 10}, ConfigError),
        ({"new_clients": -1}, ConfigError),
        ({"min_samples": 0}, ConfigError),
        ({"min_samples": 1000}, DataError),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, float], error: type[Exception]) -> None:
    with pytest.raises(error):
        TABLE.split(iid(10), **settings)


@pytest.mark.parametrize(
    "build", [lambda: iid(0), lambda: dirichlet(5, 0.0), lambda: dirichlet(5, float("nan")), lambda: shards(5, 0)]
)
def test_wrong_splits_are_refused(build) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError):
        build()


@pytest.mark.parametrize(("owner", "numbers"), [([-2, 0, 0], "-2 to 0"), ([-1, -1, -1], "-1 to -1")])
def test_owners_that_are_no_clients_are_refused(owner: list[int], numbers: str) -> None:
    with pytest.raises(DataError, match=rf"owner must be a list of client numbers .* Got numbers from {numbers}"):
        ft.data.by_owner(np.array(owner))


def test_digits_have_no_natural_clients() -> None:
    with pytest.raises(DataError, match="no natural clients"):
        TABLE.split()
    assert set(SPLITS) >= {"iid", "dirichlet", "classes_per_client", "natural", "quantity_skew", "shards"}


def test_a_million_clients_cost_no_objects() -> None:
    bounds = np.arange(1_000_000)[:, None] * 2 + np.array([0, 2, 2, 2])
    data = ft.data.FederatedData({"x": np.zeros((2_000_000, 1), dtype=np.float32)}, bounds)
    assert len(data.clients) == 1_000_000
    assert data.client(999_999)["x"].shape == (2, 1)


@pytest.mark.parametrize(
    "split",
    [
        ft.data.iid(10**12),
        ft.data.dirichlet(10**12, 0.5),
        ft.data.classes_per_client(10**12, 2),
        ft.data.shards(10**12),
        ft.data.shards(2, 10**12),
        ft.data.quantity_skew(10**12, 0.5),
    ],
)
def test_more_clients_than_rows_cost_no_time(split: ft.data.Split) -> None:
    """A number from an experiment file that would take terabytes, or a day."""
    with pytest.raises(DataError, match=r"(clients|per_client) must be an int in \[1, "):
        ft.data.load("digits").split(split, seed=0)
