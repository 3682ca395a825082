"""The server's step: the mean displacement is its negative gradient."""

from __future__ import annotations

import pytest
import torch

from fedtempo.client.transforms import chain, momentum, scale, sgd
from fedtempo.schedules import Now, per_round
from fedtempo.server.step import descend, descend_scaled
from fedtempo.server.sums import Aggregate

X = {"w": torch.tensor([1.0, -2.0])}


def sent(*delta: float, clients: int = 2) -> Aggregate:
    return Aggregate({"delta": {"w": torch.tensor(delta)}}, weight=4.0, clients=clients)


def test_at_rate_one_the_server_takes_the_mean() -> None:
    server = descend(sgd(1.0))
    moved, _ = server.step(X, server.init(X), sent(0.5, 2.0), Now())
    assert moved["w"].tolist() == [1.5, 0.0]
    assert X["w"].tolist() == [1.0, -2.0]


def test_the_rate_is_a_schedule_and_is_published() -> None:
    server = descend(sgd(per_round(0.5, 0.1)))
    moved, _ = server.step(X, server.init(X), sent(2.0, 2.0), Now(round=1))
    assert moved["w"].tolist() == pytest.approx([1.1, -1.9])
    assert [name for name, _ in server.schedules] == ["server lr"]


def test_momentum_by_hand() -> None:
    """m = 0.5 m + g with g = -delta; after deltas 2 and 2 the model has moved by 2 and by 3."""
    server = descend(chain(momentum(0.5), scale(1.0)))
    state = server.init(X)
    first, state = server.step(X, state, sent(2.0, 0.0), Now())
    second, _ = server.step(first, state, sent(2.0, 0.0), Now(round=1))
    assert first["w"].tolist() == [3.0, -2.0]
    assert second["w"].tolist() == [6.0, -2.0]


def test_a_factor_may_depend_on_who_took_part() -> None:
    """Three of ten clients: the displacement counts three tenths."""
    server = descend_scaled(descend(sgd(1.0)), lambda aggregate, now: aggregate.clients / now.clients)
    moved, _ = server.step(X, server.init(X), sent(10.0, 0.0, clients=3), Now(clients=10))
    assert moved["w"].tolist() == [4.0, -2.0]


def test_another_server_is_scaled_the_same_way() -> None:
    server = descend_scaled(descend(sgd(1.0)), lambda aggregate, now: 0.5)
    other = server.rewrap(descend(sgd(0.1)))
    moved, _ = other.step(X, other.init(X), sent(2.0, 4.0), Now())
    assert moved["w"].tolist() == pytest.approx([1.1, -1.8])
