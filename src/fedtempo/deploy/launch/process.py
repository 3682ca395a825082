"""What a server's or a node's process is: private to its owner, alone with its run, and quiet about Flower."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedtempo.errors import OutputError, first_line
from fedtempo.training.log import LOGGER

try:
    import fcntl
except ImportError:  # no Unix: the store's own lock refuses a second server, once all its nodes are there
    fcntl = None  # type: ignore[assignment]

FLOWERS = "FLWR_"
"""How the names of Flower's environment variables begin."""


def private_process() -> None:
    """What this process writes is for its owner only, and Flower gets no setting from the caller's environment."""
    os.umask(0o077)
    for name in [name for name in os.environ if name.startswith(FLOWERS)]:
        del os.environ[name]


def own_folder(folder: Path) -> None:
    """A folder that nobody else can enter, made if need be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise OutputError(f"state must be a folder of your own. Got {folder}: {error.strerror}.") from None


@contextmanager
def only_server(out: Path) -> Iterator[None]:
    """No other process serves this run until the end of the block."""
    handle = os.open(out, os.O_RDONLY)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(f"the run must not be served by another process. {out} is served already.") from None
        yield
    finally:
        os.close(handle)


@contextmanager
def quiet_flower() -> Iterator[None]:
    """Flower's own log is silent; a request that fails in it is one line of ours, without a traceback."""
    flower, server, handler = logging.getLogger("flwr"), logging.getLogger("uvicorn"), _OneLine()
    before = flower.level, server.propagate
    flower.setLevel(logging.CRITICAL)
    server.addHandler(handler)
    server.propagate = False
    try:
        yield
    finally:
        server.removeHandler(handler)
        flower.setLevel(before[0])
        server.propagate = before[1]


class _OneLine(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            error = record.exc_info[1] if record.exc_info else None
            LOGGER.warning("a request failed: %s", record.getMessage() if error is None else first_line(error))
