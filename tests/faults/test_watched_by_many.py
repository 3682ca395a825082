"""`fedtempo watch` keeps answering while others hold connections open and say nothing."""

from __future__ import annotations

import http.client
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fedtempo.report import watching
from tests.faults.test_durable import stopped_after
from tests.programs import fedtempo
from tests.waiting import PATIENCE, allowed, until

IDLE = 1_500
COOKIE: dict[str, str] = {}
"""The token of the page that is served."""


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The real program, with as many files as a shell gives it."""
    stopped_after(2, tmp_path / "run")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    process = fedtempo("watch", str(tmp_path / "run"))
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    try:
        address = urlsplit(process.stdout.readline().strip())
        monkeypatch.setattr(sys.modules[__name__], "COOKIE", {"Cookie": f"fedtempo-{address.port}={address.query[6:]}"})
        assert address.port is not None
        yield address.port
    finally:
        process.kill()
        process.communicate()


def ask(port: int, path: str = "/data.json") -> float:
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", path, headers=COOKIE)
    assert connection.getresponse().status == 200
    connection.close()
    return time.monotonic() - began


FIRST = [
    pytest.param(b"", marks=pytest.mark.slow("half a request is the harder case")),
    b"GET /data.json HTTP/1.1\r\nHost: x",
]


@pytest.mark.parametrize("first", FIRST, ids=["silent", "half a request"])
def test_fifteen_hundred_idle_connections(first: bytes, port: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < IDLE + 200:
        pytest.skip("this process may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, IDLE + 200), hard))
    try:
        with ExitStack() as stack:
            ask(port, "/")
            longest = 0.0
            for number in range(IDLE):
                idle = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
                if first:
                    idle.sendall(first)
                if number % 100 == 99:
                    longest = max(longest, ask(port))
            for _ in range(20):
                longest = max(longest, ask(port), ask(port, "/"))
            print(f"the slowest answer took {longest:.2f} s")
            assert longest < allowed(8)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def accepted(port: int) -> None:
    """Connections are accepted in order: once a new one is answered, all earlier ones have been."""
    last = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    last.request("GET", "/data.json", headers=COOKIE)
    last.getresponse().read()
    last.close()


def test_a_page_that_asks_again_on_one_connection_is_kept(port: int) -> None:
    """A browser's connection that is in use is not the one that is closed."""
    with ExitStack() as stack:
        page = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        for _ in range(6):
            page.request("GET", "/data.json", headers=COOKIE)
            answer = page.getresponse()
            assert answer.status == 200
            answer.read()
            for _ in range(60):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            accepted(port)
        page.close()


def test_those_that_do_not_read_their_answer_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """All places are taken by connections that are being answered: the one that takes longest has to go."""
    monkeypatch.setattr(watching, "MOST", 4)

    class Handler(BaseHTTPRequestHandler):
        server: watching.PageServer
        timeout = PATIENCE

        def do_GET(self) -> None:
            self.server.answering(self.connection)
            if self.path == "/slow":  # as a write does that nobody reads: it ends when the connection is shut
                self.connection.recv(1)
                return
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = watching.PageServer(("127.0.0.1", 0), watched=None)  # type: ignore[arg-type]
    server.RequestHandlerClass = Handler
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with ExitStack() as stack:
            slow = [
                stack.enter_context(socket.create_connection(server.server_address[:2], timeout=PATIENCE))
                for _ in range(12)
            ]
            for connection in slow:
                connection.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
            assert until(lambda: len(server._busy) >= 3)
            for _ in range(5):
                ask(server.server_address[1], "/")
                assert len(server._busy) + len(server._silent) <= 4
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
