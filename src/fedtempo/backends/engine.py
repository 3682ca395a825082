"""Engines: where blocks of clients are worked on. In this process, or in workers that hold the federation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self

from fedtempo.backends.block import Backend
from fedtempo.federation import Federation

Work = Callable[[Federation, Backend, Any, Any], Any]
"""A module-level function of (federation, backend, what all items share, one item)."""


class Engine(Protocol):
    """Applies work to items and yields the results in the order of the items."""

    def map(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[Any]:
        """One result per item, in order."""
        ...

    def __enter__(self) -> Self:
        """Start what has to be started."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything that was started."""
        ...


class InProcess:
    """The engine without workers."""

    def __init__(self, federation: Federation, backend: Backend) -> None:
        self._federation = federation
        self._backend = backend

    def map(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[Any]:
        """Work on one item after the other."""
        for item in items:
            yield work(self._federation, self._backend, common, item)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
