"""Engines: where blocks of clients run. In this process, in worker processes, on Ray, or on nodes of a deployment.

The loop sees an engine only through `train` and `score`. Sums are exact, so the choice of an engine changes no bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedtempo.backends.backend import Backend, Block, Order
from fedtempo.backends.collect import run_blocks
from fedtempo.client.objectives import Received
from fedtempo.data.parts import Part
from fedtempo.federation.federation import Federation
from fedtempo.schedules import Now
from fedtempo.server.sums import BlockSum

PartScores = dict[Part, dict[str, np.ndarray]]
"""By part and metric, one number for each user of a block."""
BlockScores = tuple[PartScores, PartScores]
"""Scores of a block of users before and after fine-tuning."""


class Scoring(Protocol):
    """An evaluation: what all its users share, and how one block of them is scored."""

    @property
    def received(self) -> Received:
        """The model that users are served with."""
        ...

    @property
    def now(self) -> Now:
        """The position of the run: its round, and what schedules may read."""
        ...

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of their rows that users are scored on."""
        ...

    @property
    def newcomers(self) -> bool:
        """Whether the users are new."""
        ...

    def score_block(self, federation: Federation, backend: Backend, block: Block) -> BlockScores:
        """The block's scores."""
        ...


class Calibration(NamedTuple):
    """What was measured: seconds of one block, blocks of a round, and the number of processes chosen from them."""

    seconds: float
    blocks: int
    workers: int

    def __str__(self) -> str:
        return f"calibrated: {1000 * self.seconds:.3g} ms a block, {self.blocks} a round"


@dataclass
class EngineStatus:
    """What an engine has found out so far."""

    replaced: int = 0
    """Workers that died or hung and were replaced."""
    calibration: Calibration | None = None
    """The measurement behind the number of workers; None where the user set it."""


class Engine(Protocol):
    """Trains and scores blocks of clients, wherever they are."""

    @property
    def status(self) -> EngineStatus:
        """Workers replaced so far, and what was measured."""
        ...

    def train(self, order: Order, blocks: Iterable[Block]) -> BlockSum:
        """The sum over all blocks of what their clients send."""
        ...

    def score(self, scoring: Scoring, blocks: Iterable[Block]) -> Iterator[BlockScores]:
        """The scores of each block, in the order of the blocks."""
        ...


@runtime_checkable
class WorkerPool(Protocol):
    """An engine whose workers can be killed, to test that a death changes nothing."""

    def kill_worker(self) -> None:
        """Kill one worker."""
        ...


class InProcess:
    """The engine without workers."""

    def __init__(self, federation: Federation, backend: Backend) -> None:
        self._federation = federation
        self._backend = backend
        self.status = EngineStatus()

    def train(self, order: Order, blocks: Iterable[Block]) -> BlockSum:
        """Train one block after the other into one sum."""
        return run_blocks(self._federation, self._backend, order, blocks, BlockSum())

    def score(self, scoring: Scoring, blocks: Iterable[Block]) -> Iterator[BlockScores]:
        """Score one block after the other."""
        for block in blocks:
            yield scoring.score_block(self._federation, self._backend, block)
