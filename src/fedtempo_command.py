"""The program `fedtempo`, outside the package: Ctrl-C is answered from the start, before a command has loaded torch."""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130


def main() -> None:
    """Import the command line and run it. A command that is loaded takes the signals over."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell lets background programs ignore it
        signal.signal(signal.SIGINT, _stop)
    from fedtempo.cli import main as command

    command()


def _stop(number: int, frame: FrameType | None) -> None:
    """End at once: an exception could be caught, or printed, by whatever is being imported."""
    os.write(2, b"fedtempo: interrupted\n")
    os._exit(INTERRUPTED)
