"""The port of a server: bound once, and checked from outside before a node is served."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

import fedtempo as ft
from fedtempo.deploy.launch.door import _refuse
from fedtempo.deploy.launch.link import Link, _listening, bind


def answering(status: int) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await _refuse(send, status)

    return SimpleNamespace(door=app)


@pytest.mark.filterwarnings("ignore")
def test_a_server_that_would_serve_more_does_not_start() -> None:
    with (
        pytest.raises(ft.TrainingError, match="must not serve /v1/control/list-runs"),
        bind("127.0.0.1", 0) as bound,
    ):
        Link(answering(200), bound, None).__enter__()
    with bind("127.0.0.1", 0) as bound, Link(answering(404), bound, None):
        assert bound.getsockname()[1] in _listening()


def test_a_server_with_another_port_does_not_start() -> None:
    class Opens:
        """Opens a port when it is started."""

        other: socket.socket | None = None

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if self.other is None:
                self.other = socket.create_server(("127.0.0.1", 0))
            await _refuse(send, 404)

    opens = Opens()
    with bind("127.0.0.1", 0) as bound:
        link = Link(SimpleNamespace(door=opens), bound, None)  # type: ignore[arg-type]
        before = _listening()
        link._thread.start()
        while not link._server.started:
            pass
        link._check(before)
        with pytest.raises(ft.TrainingError, match="It also listens on"):
            link._check(before)
        link.__exit__(None, None, None)
    assert opens.other is not None
    opens.other.close()


def test_a_port_that_is_taken_is_one_line() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ft.ConfigError, match="port must be one that can be listened on"),
    ):
        bind("127.0.0.1", taken.getsockname()[1])
