"""What runs inside a worker process: take a chunk of blocks, train or score it, answer."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

import torch

from fedtempo.backends.backend import Backend, Block
from fedtempo.backends.collect import run_blocks
from fedtempo.backends.mailbox import Mailbox, SharedBuffers, in_place
from fedtempo.backends.shipment import receive
from fedtempo.backends.start import SENDS
from fedtempo.errors import FedTempoError, TrainingError
from fedtempo.federation.federation import Federation
from fedtempo.server.sums import BlockSum
from fedtempo.support.allocator import keep_freed_memory
from fedtempo.support.extras import library
from fedtempo.support.user_errors import what_failed

Chunk = list[tuple[int, Block]]
"""Blocks with their places in the order."""


class Assignment(NamedTuple):
    """What a worker is asked to do: score a chunk, train it and keep the sum, or train it and send the sum."""

    kind: Literal["score", "train", "finish"]
    chunk: Chunk


def serve(
    pipe: Connection,
    mailbox: Mailbox,
    foreign: list[Connection],
    federation: Federation,
    backend: Backend,
    inherited: tuple[object, ...],
) -> None:
    """The main loop of a worker: receive work, send results, end when the pipe closes."""
    for other in foreign:
        other.close()
    torch.set_num_threads(1)
    keep_freed_memory()
    state = _WorkerState(federation, backend, mailbox.advance, inherited)
    while True:
        try:
            kind, value = answered(state.do, *mailbox.unpack(pipe.recv()))
            pipe.send((kind, mailbox.pack(value)))
            # A sum is four times the model. It must not stay while the worker adds up the next one.
            del value
        except (EOFError, ConnectionError, KeyboardInterrupt):
            return


def serve_spawned(pipe: Connection, shared: SharedBuffers, content: bytes) -> None:
    """The same in a process that inherits nothing: the federation and the backend come as bytes from the driver."""
    # The driver is our own parent process, and the bytes never leave the machine.
    shipment, backend, inherited = library(SENDS, None, "a spawned worker").loads(content)
    federation = receive(shipment, shipment.federation.problem.device)
    serve(pipe, Mailbox(shared), [], federation, backend, inherited)


class _WorkerState:
    """What a worker holds between messages: what all blocks of a round share, and the sum so far."""

    def __init__(
        self, federation: Federation, backend: Backend, advance: Callable[[], None], inherited: tuple[object, ...]
    ) -> None:
        self._with = federation, backend
        self._inherited = inherited
        self._advance = advance
        self._common: Any = None
        self._sum = BlockSum()

    def do(self, kind: str, common: Any, blocks: list[Block]) -> Any:
        """Score blocks, or train them into the sum; `finish` returns the sum and starts a new one."""
        # The driver sends the shared part once per round. Its arrival therefore marks the start of a round.
        if common is not None:
            self._common, self._sum = in_place(common, self._inherited), BlockSum()
        if kind == "score":
            return [self._scored(block) for block in blocks]
        run_blocks(*self._with, self._common, blocks, self._sum, self._advance)
        if kind == "train":
            return None
        done, self._sum = self._sum, BlockSum()
        return done

    def _scored(self, block: Block) -> Any:
        scores = self._common.score_block(*self._with, block)
        self._advance()
        return scores


def answered(compute: Callable[..., Any], *arguments: Any) -> tuple[str, Any]:
    """("result", value) or ("error", error). Our own errors go back as they are, others as a TrainingError."""
    try:
        return "result", compute(*arguments)
    except FedTempoError as error:
        return "error", error
    # A worker must answer, whatever happened: the driver waits for it. The user's code may also have called sys.exit.
    except (Exception, SystemExit) as error:
        return "error", TrainingError(f"a worker failed: {what_failed(error)}")
