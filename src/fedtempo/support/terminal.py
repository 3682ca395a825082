"""What reaches a terminal: paths, labels and names are other people's text, and must not be orders to the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from fedtempo.support.printable import printable

PIPE = 1000
"""Columns of what is no terminal."""


def _is_pipe(settings: Mapping[str, Any]) -> bool:
    """Whether standard output is no terminal and nobody says how wide it is: then nothing is folded."""
    elsewhere = settings.get("file") is not None or settings.get("stderr")
    return not elsewhere and not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal()


def no_colours() -> bool:
    """Whether the user wants no colours (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def say(text: str = "", *, error: bool = False) -> None:
    """Print a line, on standard output or on standard error."""
    print(printable(text), file=sys.stderr if error else sys.stdout, flush=True)


class Terminal(Console):
    """Rich's console for other people's text: neither escape bytes nor Rich's own markup in it have an effect.

    With `NO_COLOR` in the environment nothing is bold or dim either: Rich alone would leave out colours only.
    """

    def __init__(self, **settings: Any) -> None:
        plain = {"color_system": None} if no_colours() else {}
        wide = {"width": PIPE} if _is_pipe(settings) else {}
        super().__init__(**{"markup": False, "emoji": False, **plain, **wide, **settings})

    def render_str(self, text: str, **settings: Any) -> Text:
        """Text of a line or of a cell, written out before it is measured."""
        return super().render_str(printable(text), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of what is printed; Rich's own orders to the terminal are pieces of another kind."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)
