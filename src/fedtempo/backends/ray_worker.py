"""What runs inside a Ray actor: a federation, and the latest message that all blocks share."""

from __future__ import annotations

import importlib
import platform
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import torch

from fedtempo.backends.backend import Backend
from fedtempo.backends.collect import run_blocks
from fedtempo.backends.shipment import Shipment, packed, receive, unpacked
from fedtempo.backends.worker import answered
from fedtempo.errors import ConfigError
from fedtempo.server.sums import BlockSum


class Actor:
    """A worker on Ray. What it computes comes back as ("result", value) or ("error", error): see `answered`."""

    def __init__(self, backend: Backend) -> None:
        torch.set_num_threads(1)
        self._backend = backend
        self._ticket = -1
        self._common: Any = None
        self._done = 0

    def blocks_done(self) -> int:
        """How many blocks it has finished since its start. It is asked in a thread of its own."""
        return self._done

    def _advance(self) -> None:
        self._done += 1

    def open(self, shipment: Shipment, gpu: bool) -> tuple[str, Any]:
        """Unpack the federation; the answer says what the numbers will be made with."""
        self._device = "cuda" if gpu else "cpu"
        return answered(self._opened, shipment)

    def _opened(self, shipment: Shipment) -> tuple[str, str, str]:
        if self._device != "cpu" and not torch.cuda.is_available():
            raise ConfigError(f"ray_gpus must be 0 where torch has no GPU. Got a share of one on {platform.node()}.")
        self._federation = receive(shipment, self._device)
        ray = importlib.import_module("ray")
        return made_with(), ray.get_runtime_context().get_node_id(), platform.node()

    def score(self, ticket: int, common: Any, blocks: Any) -> tuple[tuple[str, Any], None]:
        """Score blocks one by one; the second value is None, where `train` has its sums."""
        return answered(self._scores, ticket, common, blocks), None

    def _scores(self, ticket: int, common: Any, blocks: Any) -> list[Any]:
        scoring = self._unpacked(ticket, common)
        found = []
        for block in self._mine(blocks):
            found.append(packed(scoring.score_block(self._federation, self._backend, block)))
            self._advance()
        return found

    def train(self, ticket: int, common: Any, blocks: Any) -> tuple[tuple[str, Any], Any]:
        """Train blocks and sum them. The sums are returned separately, so that they can stay in Ray's store."""
        kind, value = answered(self._sum, ticket, common, blocks)
        return ((kind, replace(value, sums={})), value.sums) if kind == "result" else ((kind, value), None)

    def _sum(self, ticket: int, common: Any, blocks: Any) -> Any:
        order = self._unpacked(ticket, common)
        return packed(run_blocks(self._federation, self._backend, order, self._mine(blocks), BlockSum(), self._advance))

    def merge(self, *sums: Any) -> tuple[tuple[str, None], Any]:
        """Add up sums that lie in Ray's store."""
        whole = BlockSum()
        for each in sums:
            whole.add_sums(unpacked(each))
        return ("result", None), packed(whole.sums)

    def _unpacked(self, ticket: int, common: Any) -> Any:
        """What all blocks share; the ticket numbers it, so that it is unpacked once."""
        if ticket != self._ticket:
            self._common, self._ticket = unpacked(common, self._device), ticket
        return self._common

    def _mine(self, blocks: Any) -> Any:
        return unpacked(blocks, self._device)


def made_with() -> str:
    """The versions that bits depend on."""
    return f"fedtempo {version('fedtempo')} with torch {torch.__version__.partition('+')[0]}"
