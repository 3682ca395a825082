"""The port on which a fleet is served: bound once, checked from outside after the start, closed at the end."""

from __future__ import annotations

import http.client
import socket
import ssl
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn

from fedtempo.deploy.launch.fleet import Fleet
from fedtempo.deploy.membership.keys import ServerKeys
from fedtempo.errors import ConfigError, TrainingError, first_line

START_SECONDS = 60.0
STOP_SECONDS = 10.0
ASK_SECONDS = 10.0
BACKLOG = 2048
LISTENS = "0A"
"""How Linux writes the state of a socket that listens."""
CLOSED = ("/v1/control/list-runs", "/v1/control/start-run", "/v1/runtime/acquire-task", "/v1/fleet/pull-messages")
"""What somebody without a key must not reach."""


def bind(host: str, port: int) -> socket.socket:
    """A socket at this address that nobody else can get any more; port 0 takes a free one."""
    try:
        (family, _, _, _, place), *_ = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise ConfigError(f"port must be one that can be listened on at {host}. Got {port}: {reason}.") from None
    return bound


class Link:
    """A fleet on a socket of this machine, until the end of the block."""

    def __init__(self, fleet: Fleet, bound: socket.socket, keys: ServerKeys | None) -> None:
        self._bound, self._keys = bound, keys
        tls = {} if keys is None else {"ssl_certfile": str(keys.certificate), "ssl_keyfile": str(keys.key)}
        self._server = uvicorn.Server(
            uvicorn.Config(
                fleet.door,
                http="h11",
                ws="none",
                lifespan="off",
                proxy_headers=False,
                server_header=False,
                access_log=False,
                log_config=None,
                timeout_graceful_shutdown=1,
                **tls,  # type: ignore[arg-type]
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([bound],), name="fleet", daemon=True)

    def __enter__(self) -> Self:
        before = _listening()
        self._thread.start()
        end = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                raise TrainingError("the server did not start to listen: see the lines above.")
            time.sleep(0.01)
        self._check(before)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        self._bound.close()

    def _check(self, before: set[int]) -> None:
        """What Flower can serve besides nodes is closed, and no other port is open: a new release might differ."""
        port = self._bound.getsockname()[1]
        opened = _listening() - before - {port}
        if opened:
            raise TrainingError(f"the server must listen on port {port} only. It also listens on {sorted(opened)}.")
        for path in CLOSED:
            status = self._status(path)
            if status != 404:
                raise TrainingError(f"the server must not serve {path}. It answers {status}.")

    def _status(self, path: str) -> int:
        """The answer to a request by somebody without a key."""
        host, port = self._bound.getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
        asking: http.client.HTTPConnection
        if self._keys is None:
            asking = http.client.HTTPConnection(host, port, timeout=ASK_SECONDS)
        else:
            context = ssl.create_default_context(cafile=str(self._keys.authority))
            context.check_hostname = False  # the certificate may be for a name of another interface
            asking = http.client.HTTPSConnection(host, port, timeout=ASK_SECONDS, context=context)
        try:
            asking.request("POST", path, headers={"content-type": "application/protobuf"})
            return asking.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise TrainingError(f"the server cannot be asked at {host}:{port}: {first_line(error)}") from None
        finally:
            asking.close()


def _listening() -> set[int]:
    """The ports that this process listens on, where the system says so."""
    if sys.platform != "linux":
        return set()
    own = set()
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists this folder is gone by now
            own.add(str(handle.readlink()))
    ports = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                (
                    _,
                    local,
                    _,
                    state,
                    *_,
                ) = fields = line.split()
                if state == LISTENS and f"socket:[{fields[9]}]" in own:
                    ports.add(int(local.rpartition(":")[2], 16))
    return ports
