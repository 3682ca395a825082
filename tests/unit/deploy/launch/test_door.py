"""The door of a server: who asks is checked before anything of a request is read."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

from fedtempo.deploy.launch.door import SMALL, Door

PRIVATE, PUBLIC = generate_key_pairs()
KEY = public_key_to_bytes(PUBLIC)
PULL = "/v1/fleet/pull-messages"


def headers(length: int = 0, seconds: float = 0.0, **changed: bytes) -> list[tuple[bytes, bytes]]:
    stamp = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat().encode()
    found = {
        "flwr-public-key": b64encode(KEY),
        "flwr-signature": b64encode(sign_message(PRIVATE, stamp)),
        "flwr-timestamp": stamp,
        "content-length": str(length).encode(),
        "host": b"elsewhere/v1/control/list-runs?",
    }
    found |= {name.replace("_", "-"): value for name, value in changed.items()}
    return [(name.encode(), value) for name, value in found.items()]


class Behind:
    """The app behind the door: it notes what reaches it."""

    def __init__(self) -> None:
        self.scopes: list[MutableMapping[str, Any]] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})


def ask(
    door: Door, sent: list[tuple[bytes, bytes]], path: str = PULL, method: str = "POST", kind: str = "http"
) -> int | None:
    """The answer's status; whoever reads a body fails."""
    statuses: list[int] = []

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("the body was read")

    async def send(message: MutableMapping[str, Any]) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    scope = {"type": kind, "method": method, "path": path, "headers": sent}
    asyncio.run(door(scope, receive, send))
    return statuses[0] if statuses else None


@pytest.fixture
def door() -> Door:
    made = Door(Behind(), keys=True)
    made.admitted = {KEY}
    return made


def test_an_admitted_node_gets_in_without_its_host_header(door: Door) -> None:
    assert ask(door, headers()) == 200
    behind = door._app
    assert isinstance(behind, Behind)
    (scope,) = behind.scopes
    assert b"host" not in dict(scope["headers"]) and scope["root_path"] == ""


WRONG = {
    "too old": headers(seconds=306.0),
    "too new": headers(seconds=-6.0),
    "no signature": [pair for pair in headers() if pair[0] != b"flwr-signature"],
    "two signatures": [*headers(), (b"flwr-signature", b"AAAA")],
    "two keys": [*headers(), (b"flwr-public-key", b64encode(KEY))],
    "two times": [*headers(), (b"flwr-timestamp", b"2020-01-01")],
    "another's signature": headers(flwr_signature=b64encode(sign_message(generate_key_pairs()[0], b"now"))),
    "no base64": headers(flwr_signature=b"?"),
    "no time": headers(flwr_timestamp=b"now"),
    "a time without a zone": headers(flwr_timestamp=b"2020-01-01"),
    "no ASCII": headers(flwr_timestamp=b"\xff"),
    "no key": headers(flwr_public_key=b""),
    "another key": headers(flwr_public_key=b64encode(public_key_to_bytes(generate_key_pairs()[1]))),
}


@pytest.mark.parametrize("name", WRONG)
def test_anybody_else_does_not(name: str, door: Door) -> None:
    if name == "too new":  # signed when this file was read, which was a while ago
        WRONG[name] = headers(seconds=-60.0)
    assert ask(door, WRONG[name]) == 404


CLOSED = (
    "/v1/control/list-runs",
    "/v1/runtime/acquire-task",
    "/v1/fleet/get-fab",
    "/v1/fleet/",
    "/v1/fleet/pull-messages/",
    "/v1/fleet/register-node",
    "//v1/fleet/pull-messages",
    "",
    "/docs",
)


@pytest.mark.parametrize("path", CLOSED)
def test_nothing_else_is_open_to_a_node(path: str, door: Door) -> None:
    assert ask(door, headers(), path) == 404
    assert ask(door, headers(), PULL, "GET") == 404
    assert ask(door, headers(), kind="websocket") is None


def test_a_revoked_node_is_out_at_once(door: Door) -> None:
    door.admitted = set()
    assert ask(door, headers()) == 404


def test_without_keys_whoever_signs_gets_in() -> None:
    door = Door(Behind(), keys=False)
    assert ask(door, headers()) == ask(door, headers(), "/v1/fleet/register-node") == 200
    assert ask(door, headers(flwr_signature=b"AAAA")) == 404


def test_a_node_may_send_what_it_was_asked_for(door: Door) -> None:
    assert ask(door, headers(SMALL)) == 200
    assert ask(door, headers(SMALL + 1)) == 413
    assert door.overlong == {KEY}
    door.allowance[KEY] = 3 * SMALL
    assert [ask(door, headers(2 * SMALL)) for _ in range(2)] == [200, 413]
    assert ask(door, headers(content_length=b"many")) == 413
    assert ask(door, [*headers(), (b"transfer-encoding", b"chunked")]) == 413
    assert ask(door, [*headers(), (b"content-length", b"1")]) == 413
