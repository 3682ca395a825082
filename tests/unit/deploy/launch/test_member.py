"""A node's side: why it is not let in, in words that say what to do."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import httpx

import fedtempo as ft
from fedtempo.deploy.launch.member import BrokenError, Member, _key_pair
from fedtempo.deploy.membership.keys import make_keys


def why(status: int, ahead: float = 0.0, **headers: str) -> str:
    when = format_datetime(datetime.now(UTC) - timedelta(seconds=ahead), usegmt=True)
    node = Member("fl.example.org:8000", None, lambda message: message)
    return node._why_not_in(httpx.Response(status, headers={"date": when, **headers}))


@pytest.mark.parametrize(("ahead", "way"), [(3600.0, "ahead"), (-3600.0, "behind")])
def test_a_wrong_clock_is_named(ahead: float, way: str) -> None:
    found = re.fullmatch(r"this machine's clock must agree .* It is (\d+) s (\w+)", why(404, ahead))
    assert found and abs(int(found[1]) - 3600) < 60 and found[2] == way


def test_a_key_that_is_not_admitted_is_told_from_one_that_is_in_use() -> None:
    expected = "fl.example.org:8000 has not admitted this node's key, or no more; trying on"
    assert why(404) == why(404, date="no date") == expected
    assert "has a node with this key already" in why(400)


def test_a_server_that_does_not_listen_is_tried_again() -> None:
    node = Member("127.0.0.1:1", None, lambda message: message)
    with pytest.raises(BrokenError, match=r"127\.0\.0\.1:1 cannot be reached: .*; trying on"), node._connected():
        pass


def test_a_key_that_is_none_is_one_line(tmp_path: Path) -> None:
    make_keys(tmp_path, 1)
    assert _key_pair(tmp_path / "node-1" / "node.key").public
    (tmp_path / "node-1" / "node.key").write_text("nonsense")
    with pytest.raises(ft.ConfigError, match="must be a node's private key"):
        _key_pair(tmp_path / "node-1" / "node.key")
