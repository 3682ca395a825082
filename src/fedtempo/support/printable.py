"""Other people's text with everything that a terminal would obey written out. It loads nothing else."""

from __future__ import annotations

import re

# Control characters but for the tab and the end of a line, what turns the direction of writing, and bytes of a path
# that are no text: an escape byte may retitle the window, clear it, or hide what a line says.
_OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with everything that a terminal would obey written out.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return _OBEYED.sub(lambda found: _written_out(ord(found.group())), text)


def _written_out(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # how Python keeps a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
