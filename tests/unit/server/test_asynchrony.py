"""Rules for uploads that come late."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedtempo.errors import ConfigError
from fedtempo.server.asynchrony import fedasync, fedbuff
from fedtempo.server.sums import BlockSum

START = [("start", 1), ("finish", 1)]


def upload(value: float, weight: float = 1.0) -> BlockSum:
    block = BlockSum()
    block.add_clients(np.array([weight]), np.zeros(1), {})
    block.add_upload({"delta": {"w": torch.tensor([value], dtype=torch.float64)}}, weight)
    return block


def test_weights_fall_with_staleness() -> None:
    assert [fedbuff(staleness=0.5).weight(tau) for tau in (0, 3, 8)] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert {fedbuff(staleness=0.0).weight(tau) for tau in range(5)} == {1.0}
    assert [fedbuff(max_staleness=2).refuses(tau) for tau in (2, 3)] == [False, True]
    assert not fedbuff().refuses(10**6)


@pytest.mark.parametrize(("divide", "moved"), [("size", 12 / 3), ("weights", 12 / 2), ("nothing", 12.0)])
def test_a_buffer_as_one_upload(divide: str, moved: float) -> None:
    # Version 5 is the newest. An upload of 8 with weight 1 is fresh; one of 4 with weight 2 is three versions late and
    # counts half: 8 + 2 * 4 / 2 = 12. The weights add up to 3, those with staleness to 2.
    rule = fedbuff(2, staleness=0.5, divide_by=divide)  # type: ignore[arg-type]
    groups = {2: upload(4.0, 2.0), 5: upload(8.0)}
    aggregate = rule.aggregate(groups, 5, {}, {}, torch.float64)
    assert aggregate.means["delta"]["w"].item() == moved and aggregate.clients == 2


def test_fedasync_goes_part_of_the_way_to_the_client() -> None:
    rule = fedasync(mixing=0.5, staleness=1.0)
    models = {1: {"w": torch.tensor([2.0])}}
    # The client is at 2 + 4 = 6, the newest model at 10; three versions late it counts a quarter of a half.
    aggregate = rule.aggregate({1: upload(4.0)}, 4, models, {"w": torch.tensor([10.0])}, torch.float64)
    assert aggregate.means["delta"]["w"].item() == 0.125 * (6.0 - 10.0)


def test_rules_print_as_they_are() -> None:
    assert repr(fedbuff(3)) == "fedbuff(buffer=3, staleness=0.5, max_staleness=None, divide_by='size')"
    assert "mixing=0.6" in repr(fedasync()) and "events" in repr(fedasync(events=START))


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"buffer": 0}, "buffer"),
        ({"staleness": -1.0}, "staleness"),
        ({"max_staleness": -1}, "max_staleness"),
        ({"divide_by": "two"}, "divide_by"),
        ({"events": [("finish", 1)]}, "events"),
        ({"events": [("start", 1), ("start", 1)]}, "events"),
        ({"events": [("begin", 1)]}, "events"),
        ({"events": 3}, "events"),
    ],
)
def test_wrong_rules_are_refused(settings: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        fedbuff(**settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="mixing"):
        fedasync(mixing=1.5)
