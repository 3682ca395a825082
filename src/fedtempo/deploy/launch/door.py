"""The server's door: the few requests that an admitted node needs pass; all others end here, their body unread.

Flower's own server checks a node's signature after it has read the whole request, and serves its command line and its
workers on the same port without asking who they are. So this stands in front of it, and lets nothing through that it
does not know.
"""

from __future__ import annotations

import binascii
import datetime
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

FLEET = "/v1/fleet/"
OPEN = frozenset(
    FLEET + name
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "pull-object",
        "confirm-message-received",
        "push-messages",
        "push-object",
    )
)
WITHOUT_KEYS = OPEN | {FLEET + "register-node", FLEET + "unregister-node"}
"""Where there are no keys, on loopback, nodes register themselves."""
SMALL = 1 << 16
"""Bytes of a request that any admitted node may send at any time."""
MOST_AHEAD = SYSTEM_TIME_TOLERANCE
MOST_BEHIND = TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
"""Seconds by which the time in a signature may differ from the server's."""
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Door:
    """An ASGI app before another one."""

    def __init__(self, app: App, keys: bool) -> None:
        self._app = app
        self._open = OPEN if keys else WITHOUT_KEYS
        self.admitted: set[bytes] | None = set() if keys else None
        """The public keys of the nodes that are let in; None lets in whoever signs."""
        self.allowance: dict[bytes, int] = {}
        """Bytes that a node may still send beyond small requests, as much as the server has asked it for."""
        self.received: dict[bytes, tuple[float, int]] = {}
        """When a node's last request was let in, and the bytes of all of them."""
        self.overlong: set[bytes] = set()
        """Nodes that wanted to send more than that since they were asked."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 404 without reading its body."""
        if scope["type"] != "http":
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        known = scope["method"] == "POST" and scope["path"] in self._open
        node = self._signer(headers) if known else None
        if node is None:
            await _refuse(send, 404)
        elif not self._short_enough(node, headers):
            await _refuse(send, 413)
        else:
            # Flower makes a request's path out of this header, too, so it must not reach it.
            kept = [(name, value) for name, value in headers if name != b"host"]
            await self._app({**scope, "headers": kept, "root_path": ""}, receive, send)

    def _signer(self, headers: list[tuple[bytes, bytes]]) -> bytes | None:
        """The public key that has signed the request a moment ago, if it is an admitted one."""
        try:
            key, signature = (
                b64decode(_only(headers, name), validate=True)
                for name in (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER)
            )
            if self.admitted is not None and key not in self.admitted:
                return None
            when = _only(headers, TIMESTAMP_HEADER)
            age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(when.decode("ascii"))
            public = bytes_to_public_key(key)
            right = isinstance(public, ec.EllipticCurvePublicKey) and verify_signature(public, when, signature)
        except (ValueError, TypeError, OverflowError, binascii.Error, UnsupportedAlgorithm):
            return None
        return key if right and -MOST_AHEAD < age.total_seconds() < MOST_BEHIND else None

    def _short_enough(self, node: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether the body is small, or within what the node was asked for; its length must be said beforehand."""
        try:
            length = int(_only(headers, "content-length"))
        except ValueError:
            return False
        if any(name == b"transfer-encoding" for name, _ in headers):
            return False
        if length > SMALL:
            left = self.allowance.get(node, 0) - length
            if left < 0:
                self.overlong.add(node)
                return False
            self.allowance[node] = left
        self.received[node] = (time.time(), self.received.get(node, (0.0, 0))[1] + length)
        return True


def _only(headers: list[tuple[bytes, bytes]], name: str) -> bytes:
    """The header of this name; `ValueError` unless there is exactly one."""
    wanted = name.lower().encode("ascii")
    (found,) = (value for header, value in headers if header == wanted)
    return found


async def _refuse(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
