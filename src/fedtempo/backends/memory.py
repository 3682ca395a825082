"""An accelerator's memory: how many clients fit into it side by side, and what happens when it runs out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from fedtempo.backends.backend import Block
from fedtempo.federation.process_notes import ProcessNotes

Result = TypeVar("Result")

SHARE_OF_FREE_MEMORY = 0.5
COPIES_OF_A_LANE = 16
"""Copies of the model that one client needs: weights, gradients, states, sums in float64, and a guess for activations.
If the guess is too low, memory runs out and the block is halved."""
MOST_LANES_ON_A_DEVICE = 1024
_LOG = logging.getLogger("fedtempo")


def lanes_in(free_bytes: int, parameters: int, bytes_per_number: int = 4) -> int:
    """How many clients to run side by side in so much free memory: a power of two, so that it seldom changes.

    >>> lanes_in(8 * 2**30, 10_000_000), lanes_in(8 * 2**30, 600), lanes_in(2**20, 10_000_000)
    (4, 1024, 1)
    """
    fit = int(SHARE_OF_FREE_MEMORY * free_bytes) // max(1, COPIES_OF_A_LANE * parameters * bytes_per_number)
    return 1 << min(max(fit, 1), MOST_LANES_ON_A_DEVICE).bit_length() - 1


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error, or the one that it tells of, is an accelerator's lack of memory."""
    return any(isinstance(each, torch.OutOfMemoryError) for each in (error, error.__cause__))


def in_pieces_that_fit(notes: ProcessNotes, block: Block, work: Callable[[Block], Result]) -> Iterator[Result]:
    """The results of `work` on pieces of the block that fit into memory. Work that fails must leave no trace."""
    start = 0
    while start < len(block.clients):
        piece = part_of(block, start, start + (notes.most_clients or len(block.clients)))
        try:
            result = work(piece)
        except Exception as error:
            if len(piece.clients) < 2 or not is_out_of_memory(error):
                raise
            _lower(notes, len(piece.clients))
            continue
        yield result
        start += len(piece.clients)


def _lower(notes: ProcessNotes, count: int) -> None:
    notes.most_clients = count // 2
    _LOG.warning("out of memory with %d clients side by side: going on with %d", count, notes.most_clients)
    if torch.accelerator.is_available():
        module = torch.get_device_module(torch.accelerator.current_accelerator())
        module.empty_cache()


def part_of(block: Block, start: int, stop: int) -> Block:
    """Some clients of a block, with what they keep."""
    return Block(block.clients[start:stop], block.kept[start:stop], block.selected[start:stop])
