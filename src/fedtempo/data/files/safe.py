"""Reading bytes that may be hostile, one process at a time."""

from __future__ import annotations

import gzip
import io
import math
import tokenize
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from filelock import FileLock

from fedtempo.errors import DataError, OutputError

LARGEST = 8 << 30
"""No file of any known data set unpacks to more than this many bytes."""
LARGEST_RATIO = 200
"""The known files unpack to at most 15 times their size; deflate alone could do 1,032."""
_FREE = 1 << 20
_BAD_ARRAY = (ValueError, EOFError, SyntaxError, TypeError, OverflowError, RecursionError, tokenize.TokenError)
"""What numpy's header reader raises, down to its tokenizer."""
_GZIP = b"\x1f\x8b"


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """One process at a time works on `path`; the lock goes with the process, however it ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f".{path.name}.lock"))
        lock.acquire()
    except OSError as error:
        raise OutputError(f"the cache folder {path.parent} cannot be written: {error.strerror or error}.") from None
    try:
        yield
    finally:
        lock.release()


def check_ratio(name: str, packed: int, unpacked: int) -> None:
    """Refuse a file that would unpack to far more than any real one does."""
    if unpacked > LARGEST or unpacked > max(_FREE, LARGEST_RATIO * packed):
        rule = f"unpack to at most {LARGEST_RATIO} times its {packed} bytes"
        raise DataError(f"{name} must {rule}. Got {unpacked} bytes or more.")


class LimitedStream:
    """The unpacked bytes of a file, which may not become many times more than the packed ones."""

    def __init__(self, stream: gzip.GzipFile, packed: int, name: str) -> None:
        self._stream = stream
        self._taken = 0
        self.packed = packed
        self.name = name

    def read(self, count: int = -1) -> bytes:
        """Up to `count` bytes; a damaged file and one beyond the limits are refused."""
        room = min(LARGEST, max(_FREE, LARGEST_RATIO * self.packed)) - self._taken + 1
        try:
            content = self._stream.read(room if count < 0 else min(count, room))
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{self.name} is damaged: {error}.") from None
        self._taken += len(content)
        check_ratio(self.name, self.packed, self._taken)
        return content

    def exactly(self, count: int) -> bytes:
        """The next `count` bytes; a file that ends earlier is refused."""
        content = self.read(count)
        if len(content) != count:
            raise DataError(f"{self.name} is cut short: {count} bytes expected, {len(content)} there.")
        return content


@contextmanager
def open_gzip(source: Path | bytes, name: str) -> Iterator[LimitedStream]:
    """The unpacked bytes of a gzip file; an HTML page or anything else is refused by its first bytes."""
    packed = len(source) if isinstance(source, bytes) else source.stat().st_size
    opened: IO[bytes] = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
    with opened as raw:
        start = raw.read(512)
        raw.seek(0)
        if not start.startswith(_GZIP):
            raise DataError(f"{name} must be a gzip file. Got {kind_of(start)}.")
        with gzip.GzipFile(fileobj=raw) as stream:
            yield LimitedStream(stream, packed, name)


def kind_of(start: bytes) -> str:
    """What a file looks like from its first bytes, for an error message."""
    text = start.lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "an HTML page (the server's error page, most likely)"
    return f"a file that begins with {start[:8].hex(' ') or 'nothing'}"


def gunzip(source: Path | bytes, name: str) -> bytes:
    """All bytes of a gzip file, up to the limits."""
    with open_gzip(source, name) as stream:
        return stream.read()


def read_text(content: bytes, name: str) -> str:
    """Bytes as UTF-8 text."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} must be UTF-8 text. Got other bytes at {error.start}.") from None


def read_npy(content: bytes, name: str) -> np.ndarray:
    """One array from the bytes of an npy file; its size must be what its header says, and objects are refused."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = reader(stream)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
            raise ValueError(f"shape {shape} of {dtype} does not fit {len(content)} bytes")
        stream.seek(0)
        return np.lib.format.read_array(stream, allow_pickle=False)
    except _BAD_ARRAY as error:
        raise DataError(f"{name} is not an array of numbers: {error}.") from None
