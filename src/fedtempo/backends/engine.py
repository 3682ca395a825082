"""Engines: where blocks of clients are worked on. In this process, or in workers that hold the federation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from fedtempo.backends.block import Backend
from fedtempo.errors import ConfigError
from fedtempo.federation.federation import Federation
from fedtempo.server.sums import BlockSum

Work = Callable[[Federation, Backend, Any, Any], Any]
"""A module-level function of (federation, backend, what all items share, one item)."""
Summing = Callable[[Federation, Backend, Any, Iterable[Any], BlockSum], BlockSum]
"""A module-level function of the same, but for some items and a sum: what comes of the items is added to the sum."""


class Calibration(NamedTuple):
    """How long a block of clients takes here, how many there are in a round, and how many processes suit that."""

    seconds: float
    blocks: int
    workers: int

    def __str__(self) -> str:
        return f"calibrated: {1000 * self.seconds:.3g} ms a block, {self.blocks} a round"


class Engine(ABC):
    """Applies work to items; entered to start what has to be started, left to stop it."""

    deaths: int = 0
    """Workers that had to be replaced so far."""
    calibration: Calibration | None = None
    """What was measured to decide where clients run, where that was left to the machine."""

    @abstractmethod
    def map(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[Any]:
        """One result per item, in the order of the items."""

    @abstractmethod
    def add_up(self, work: Summing, common: Any, items: Iterable[Any]) -> BlockSum:
        """The sum over all items; whoever works on them may add up a part of it."""

    def kill_worker(self) -> None:
        """Kill one of the workers, for whoever wants to see that it does not matter."""
        raise ConfigError("faults.kill must be 0 where there are no worker processes to kill.")

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

    def add_up(self, work: Summing, common: Any, items: Iterable[Any]) -> BlockSum:
        """One item after the other into one sum."""
        return work(self._federation, self._backend, common, items, BlockSum())
