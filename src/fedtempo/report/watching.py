"""The live page of a run: served to this machine only, read from the run's store, refreshed by itself."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedtempo.errors import FedTempoError, OutputError
from fedtempo.report.html import as_json, report
from fedtempo.report.payload import payload
from fedtempo.report.stored import with_experiment
from fedtempo.training.view import Run, RunFolder

HOST = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
MOST = 100
"""Connections at a time."""
SPARED = 10
"""Numbers are made anew only after this many times what making them took, so that watching costs little."""


class Watched:
    """What the page is told: the run so far, made anew when a round was committed."""

    def __init__(self, folder: Path, allow_code: Sequence[str] = ()) -> None:
        self._stored, self._allow_code = RunFolder(folder), allow_code
        self._lock = threading.Lock()
        self._pictures: Run | None = None
        self._run = self._stored.refresh()
        self._not_before = 0.0
        threading.Thread(target=self._draw, daemon=True).start()

    def _draw(self) -> None:
        """Data and schedules take a while to load; the page begins without them."""
        drawn = with_experiment(self._run, self._stored.folder, self._allow_code).drawn()
        with self._lock:
            self._pictures, self._not_before = drawn, 0.0

    @property
    def version(self) -> str:
        """Changes whenever there is something new to draw."""
        return f"{len(self._run.history)}-{self._run.digest or ''}-{self._run.picture is not None}"

    def page(self) -> str:
        """The whole page."""
        with self._lock:
            self._refresh()
            live = {"version": self.version, "age": self._stored.age()}
            return report([self._run], title=self._run.name, live=live)

    def numbers(self, known: str) -> str:
        """The numbers as JSON; only how old they are where the page knows them already."""
        with self._lock:
            self._refresh()
            state = {"version": self.version, "age": self._stored.age()}
            return as_json(state if known == self.version else {**payload([self._run], self._run.name), **state})

    def _refresh(self) -> None:
        began = time.monotonic()
        if began < self._not_before:
            return
        run, drawn = self._stored.refresh(), self._pictures
        self._run = replace(run, facts=drawn.facts, picture=drawn.picture, plan=drawn.plan) if drawn else run
        # Reading a long run takes time from the training: the longer it took, the later it is read again.
        self._not_before = began + max(1.0, SPARED * (time.monotonic() - began))


class PageServer(ThreadingHTTPServer):
    """Serves at most `MOST` connections at a time: a newcomer takes the place of the one that has been silent longest.

    Where none is silent, it is the one that has been reading its answer longest.

    Every connection has a thread and a file, of which a process has few. A page that is still open connects again.
    """

    # Python's default of 5 makes connections that arrive together wait for a second attempt.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], watched: Watched) -> None:
        self.watched = watched
        self.token = secrets.token_urlsafe(32)
        """Whoever knows it may read: the machine's other users can reach the port, and must not see a closed folder."""
        self._silent: dict[socket.socket, None] = {}
        self._busy: dict[socket.socket, None] = {}
        self._changing = threading.Lock()
        super().__init__(address, _Handler)

    @property
    def address(self) -> str:
        """The address to open, with the token."""
        return f"http://{HOST}:{self.server_address[1]}/?token={self.token}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Make room, then serve the connection in a thread of its own."""
        with self._changing:
            # One that asks and does not read its answer keeps its thread as well: after the silent ones it has to go.
            known = [*self._silent, *self._busy]
            oldest = known[: max(0, len(known) + 1 - MOST)]
            for connection in oldest:
                self._silent.pop(connection, None)
                self._busy.pop(connection, None)
            self._silent[request] = None
        # Without the lock: the threads that wake up take it themselves, in `shutdown_request`.
        for connection in oldest:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # its thread wakes up, finds it closed and ends
        super().process_request(request, client_address)

    def answering(self, connection: socket.socket) -> None:
        """The connection has asked for something: it is not silent."""
        self._move(connection, self._silent, self._busy)

    def waiting(self, connection: socket.socket) -> None:
        """The connection has got its answer and may be silent from now on."""
        self._move(connection, self._busy, self._silent)

    def _move(
        self, connection: socket.socket, here: dict[socket.socket, None], there: dict[socket.socket, None]
    ) -> None:
        with self._changing:
            if connection in here:  # one that had to go meanwhile is not taken back
                del here[connection]
                there[connection] = None

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that is over."""
        with self._changing:
            self._silent.pop(request, None)
            self._busy.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a browser that closes its connection is not an error."""


class _Handler(BaseHTTPRequestHandler):
    """Two addresses, for reading only."""

    timeout = 30
    protocol_version = "HTTP/1.1"

    server: PageServer

    def handle_one_request(self) -> None:
        """Read a request and answer it; waiting for the next one is silence again."""
        super().handle_one_request()
        self.server.waiting(self.connection)

    def do_GET(self) -> None:
        """Answer with the page or its numbers. Another host name is refused: a web page elsewhere made it up."""
        self.server.answering(self.connection)
        address = urlsplit(self.path)
        port = self.connection.getsockname()[1]
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", f"open http://{HOST}:{port}/ on this machine")
        elif not self._is_known(asked := parse_qs(address.query)):
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "open the whole address that fedtempo watch has printed")
        elif address.path == "/" and "token" in asked:
            # The browser keeps the token as a cookie, so that it stays neither in the address bar nor in the history.
            cookie = f"{self._cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Lax"
            self._answer(HTTPStatus.SEE_OTHER, "text/plain", "", {"Location": "/", "Set-Cookie": cookie})
        elif address.path == "/":
            self._try("text/html", self.server.watched.page)
        elif address.path == "/data.json":
            known = asked.get("known", [""])[0]
            self._try("application/json", lambda: self.server.watched.numbers(known))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "nothing here")

    def _try(self, kind: str, make: Callable[[], str]) -> None:
        try:
            text = make()
        except FedTempoError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", str(error))
        else:
            self._answer(HTTPStatus.OK, kind, text)

    @property
    def _cookie(self) -> str:
        """Its name; a browser sends the cookies of all ports of a machine to each of them."""
        return f"fedtempo-{self.connection.getsockname()[1]}"

    def _is_known(self, asked: Mapping[str, list[str]]) -> bool:
        """Whether the token is in the address or in the cookie. The time it takes tells nothing about the token."""
        given = asked.get("token", [])
        with suppress(CookieError):
            kept = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie)
            given = given + ([kept.value] if kept is not None else [])
        return any(secrets.compare_digest(one.encode(), self.server.token.encode()) for one in given)

    def _answer(self, status: HTTPStatus, kind: str, text: str, more: Mapping[str, str] | None = None) -> None:
        body = text.encode()
        own = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), **(more or {})}
        self.send_response(status)
        for name, value in {**own, **HEADERS}.items():
            self.send_header(name, value)
        try:
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:  # the page was closed or reloaded meanwhile; what else it asked for is not made
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a page that asks every two seconds would flood the terminal."""


def page_server(folder: Path, port: int = 0, allow_code: Sequence[str] = ()) -> PageServer:
    """A server of the run's live page on 127.0.0.1; port 0 is any free one."""
    watched = Watched(folder, allow_code)
    try:
        return PageServer((HOST, port), watched)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"port must be a free port of this machine. Got {port}: {reason}.") from None
