"""What the user's code raised, in one line: the kind of error, what it says, and the line that it came from."""

from __future__ import annotations

import functools
import traceback
from pathlib import Path

import torch

from fedtempo.errors import first_line

LIBRARIES = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent), functools.__file__)
INSTALLED = str(Path(torch.__file__).parents[1])


def what_failed(error: BaseException) -> str:
    """The error as a message shows it. A worker's traceback does not come back with it, so the line is named here.

    >>> what_failed(KeyError("age"))
    "KeyError: 'age'"
    """
    said = first_line(error)
    if said.startswith("vmap: It looks like"):  # torch's text on values that decide the way is long, asks for an issue
        return f"what the model computes depends on the data{place_of(error)}"
    if isinstance(error, torch.OutOfMemoryError):
        return f"the device's memory ran out: use a smaller batch_size, or accumulate= ({said})"
    kind = type(error).__name__
    return f"{kind if said == kind else f'{kind}: {said}'}{place_of(error)}"


def place_of(error: BaseException) -> str:
    """The last line of the user's code that the error went through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(LIBRARIES)]
    # The user's own call says more than the line of numpy or scikit-learn that it ended in.
    frames = [f for f in frames if not f.filename.startswith(INSTALLED)] or frames
    return f" in {frames[-1].name}, {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""
