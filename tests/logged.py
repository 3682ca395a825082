"""What the library says on its logger, for helpers that have no fixture."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logged() -> Iterator[list[str]]:
    """The lines that are said inside."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("fedtempo")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
