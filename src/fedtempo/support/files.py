"""Files: written whole or not at all, also after a power cut, and read within bounds from folders of strangers."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedtempo.errors import OutputError

ABANDONED_SECONDS = 3600.0
"""A partial file that nobody has touched for so long belongs to a process that was killed."""
EVERYBODYS, OWNERS = 0o666, 0o600
"""Who may read a new file, but for the user's umask: everybody, or the owner alone."""
LARGEST = 64 << 20
"""Bytes of a file in a run folder that is read whole."""


def read_inside(folder: Path, name: str, most: int = LARGEST) -> bytes:
    """The bytes of a plain file in a folder that anybody may have made.

    A link out of the folder, a pipe, a device, and a file of more than `most` bytes are an `OSError` with the reason.
    """
    # O_NONBLOCK: opening a pipe would wait for somebody who writes into it.
    handle = os.open(plain_inside(folder, name), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise _unfit(folder / name, "it is no plain file")
        content = file.read(most + 1) if found.st_size <= most else b""
    if found.st_size > most or len(content) > most:
        raise _unfit(folder / name, f"it has more than {most:,} bytes")
    return content


def plain_inside(folder: Path, name: str) -> Path:
    """Where a plain file of a folder lies when links are followed; `OSError` if that is outside, or no plain file."""
    path = folder / name
    try:
        place = path.resolve(strict=True)
        inside = place.is_relative_to(folder.resolve())
    except (RuntimeError, ValueError) as error:  # links in a circle, a name with a zero byte
        raise _unfit(path, str(error)) from None
    if not inside:
        raise _unfit(path, "it is a link out of its folder")
    if not stat.S_ISREG(place.stat().st_mode):
        raise _unfit(path, "it is no plain file")
    return place


def _unfit(path: Path, reason: str) -> OSError:
    return OSError(errno.EINVAL, reason, str(path))


def write_atomically(
    path: str | Path, content: str | bytes, setting: str | None = None, mode: int = EVERYBODYS
) -> Path:
    """Put `content` at `path` in one step: a reader sees the old file or the new one, never a part.

    Text is written as UTF-8, its line ends unchanged. `setting` is the name that a user gave the path under; the error
    for a path that cannot be written names it. Returns the path.
    """
    data = content.encode() if isinstance(content, str) else content
    with replacing(path, setting, mode) as partial:
        partial.write_bytes(data)
    return Path(path)


@contextmanager
def replacing(path: str | Path, setting: str | None = None, mode: int = EVERYBODYS) -> Iterator[Path]:
    """A file beside `path` to write into; at the end of the block it takes the place of `path`."""
    try:
        # A link stays a link to the new file; a terminal or a pipe (/dev/stdout) cannot be replaced, only written to.
        target = Path(path).expanduser().resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():
            yield target
            return
        _clear_abandoned(target)
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
        try:
            # Not tempfile: its files are for their owner only, and a report should be as readable as any other file.
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
            yield partial
            _sync(partial)
            partial.replace(target)
            _sync(target.parent)  # the new name is on the disk only once its folder is
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
    except OutputError:
        raise
    except OSError as error:
        rule = f"{setting} must be a path that can be written. Got {path}" if setting else f"{path} cannot be written"
        raise OutputError(f"{rule}: {error.strerror or error}.") from None


@contextmanager
def sole_user(folder: Path, lock_name: str) -> Iterator[None]:
    """The folder is made, and no other process uses it until the end of the block."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / lock_name)
        lock.acquire(timeout=0)
    except Timeout:
        raise OutputError(f"out must be a folder that no other process uses. Got {folder}.") from None
    except OSError as error:
        raise OutputError(f"out must be a folder that can be written. Got {folder}: {error.strerror}.") from None
    try:
        yield
    finally:
        lock.release()


def _clear_abandoned(target: Path) -> None:
    for leftover in target.parent.glob(f".{_literal(target.name)}.????????.partial"):
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime > ABANDONED_SECONDS:
                leftover.unlink()


def _literal(name: str) -> str:
    """A name as a pattern that matches nothing else."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems whose folders cannot be synced
            raise
    finally:
        os.close(handle)
