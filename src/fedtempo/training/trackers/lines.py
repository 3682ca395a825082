"""Text files that grow by a line per round and may have been cut short by a kill."""

from __future__ import annotations

import errno
from pathlib import Path

from fedtempo.training.tracking import unwritable

_PIECE = 1 << 20
LARGEST = 1 << 30
"""Bytes of such a file: hundreds of thousands of rounds. One that somebody sent may be without an end."""


def whole_lines(path: Path, tracker: str) -> tuple[int, str]:
    """How many complete lines a file has, and the first of them; a last line without its end is cut off.

    A new file is empty and can be written. Only a piece of the file is in memory at a time.
    """
    try:
        path.touch(mode=0o600)
        if not path.is_file():
            raise OSError(errno.EINVAL, "it is no plain file")
        with path.open("r+b") as file:
            size = file.seek(0, 2)
            if size > LARGEST:
                raise OSError(errno.EFBIG, f"it has more than {LARGEST:,} bytes")
            file.seek(0)
            lines = whole = read = 0
            while piece := file.read(_PIECE):
                lines += piece.count(b"\n")
                whole = read + piece.rfind(b"\n") + 1 if b"\n" in piece else whole
                read += len(piece)
            if whole != read:
                file.truncate(whole)
            file.seek(0)
            first = file.readline(_PIECE).decode(errors="replace")
    except OSError as error:
        raise unwritable(tracker, path, error) from None
    return lines, first
