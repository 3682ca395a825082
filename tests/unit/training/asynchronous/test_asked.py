"""Clients that are asked one by one: answers in the order in which they come, errors where they are waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from fedtempo.backends import Block, Order
from fedtempo.backends.engine import EngineStatus, Scoring
from fedtempo.client.objectives import Received
from fedtempo.schedules import Now
from fedtempo.server.sums import BlockSum, Failure
from fedtempo.training.asynchronous.asked import AskedEngine

ORDER = Order(Received({}, {}), Now())


class Gated:
    """An engine whose clients answer when the test lets them; client 9 breaks."""

    def __init__(self) -> None:
        self.status = EngineStatus()
        self.gates = {client: threading.Event() for client in (1, 2, 9)}

    def train(self, order: Order, blocks: Iterable[Block]) -> BlockSum:
        (client,) = [c for block in blocks for c in block.clients.tolist()]
        assert self.gates[client].wait(20)
        if client == 9:
            raise ConnectionError("gone")
        return BlockSum(clients=1, failures=[Failure(client, "a mark")])

    def score(self, scoring: Scoring, blocks: Iterable[Block]) -> Iterator[Any]:
        return iter(["scores"])


def block(*clients: int) -> list[Block]:
    return [Block(np.array([client]), []) for client in clients]


def test_answers_are_taken_as_they_come() -> None:
    engine = Gated()
    asked = AskedEngine(engine)
    for client in (1, 2):
        asked.ask(client, ORDER, block(client))
    assert asked.asked(1) and asked.asked(2) and not asked.asked(9)
    engine.gates[2].set()
    client, seconds = asked.wait()
    assert client == 2 and seconds >= 0 and not asked.asked(2)
    engine.gates[1].set()
    assert asked.wait()[0] == 1
    together = asked.train(ORDER, block(1, 2))
    assert together.clients == 2 and [failure.client for failure in together.failures] == [1, 2]
    assert asked.status is engine.status and list(asked.score(None, [])) == ["scores"]  # type: ignore[arg-type]


def test_an_error_reaches_the_server() -> None:
    engine = Gated()
    asked = AskedEngine(engine)
    asked.ask(9, ORDER, block(9))
    engine.gates[9].set()
    with pytest.raises(ConnectionError, match="gone"):
        asked.wait()
