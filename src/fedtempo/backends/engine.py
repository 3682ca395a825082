"""Engines: where blocks of clients are worked on. In this process, or in workers that hold the federation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from fedtempo.aggregation import BlockSum, total
from fedtempo.backends.trained import Backend
from fedtempo.federation import Federation

Work = Callable[[Federation, Backend, Any, Any], Any]
"""A module-level function of (federation, backend, what all items share, one item)."""


class Engine(ABC):
    """Applies work to items; entered to start what has to be started, left to stop it."""

    deaths: int = 0
    """Workers that had to be replaced so far."""

    @abstractmethod
    def map(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[Any]:
        """One result per item, in the order of the items."""

    def add_up(self, work: Work, common: Any, items: Iterable[Any]) -> BlockSum:
        """The sum of the results, for work that makes sums."""
        return total(self.map(work, common, items))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class InProcess(Engine):
    """The engine without workers."""

    def __init__(self, federation: Federation, backend: Backend) -> None:
        self._federation = federation
        self._backend = backend

    def map(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[Any]:
        """Work on one item after the other."""
        for item in items:
            yield work(self._federation, self._backend, common, item)
