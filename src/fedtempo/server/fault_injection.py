"""Fault injection: clients that drop out, are slow, or send what they should not; workers that are killed.

For our tests, and for yours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import torch

from fedtempo.errors import is_number, require
from fedtempo.randomness import client_keys, generator, random_bits
from fedtempo.server.sums import Groups

HUGE = 1e6


@dataclass(frozen=True)
class Faults:
    """Shares of clients that fail each round, each in one way; which ones is decided by seed, round and client."""

    drop: float = 0.0
    """Never answers."""
    nan: float = 0.0
    """Sends one NaN."""
    infinite: float = 0.0
    """Sends infinity everywhere."""
    huge: float = 0.0
    """Sends its update multiplied by a million."""
    misshapen: float = 0.0
    """Sends single numbers that would broadcast."""
    renamed: float = 0.0
    """Sends tensors under other names."""
    slow: float = 0.0
    """Takes `delay` seconds longer."""
    delay: float = 0.01
    kill: float = 0.0
    """The share of rounds in which a worker process is killed. Its clients run again, so the numbers do not change."""
    until: int | None = None
    """The round from which no faults are injected any more; None injects them to the end."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name not in ("delay", "until"):
                require(is_number(value) and 0 <= value <= 1, f"faults.{item.name}", "a share in [0, 1]", value)
        require(sum(self._shares().values()) <= 1, "faults", "shares that add up to at most 1", self._shares())

    def _shares(self) -> dict[str, float]:
        names = ("drop", "nan", "infinite", "huge", "misshapen", "renamed", "slow")
        return {name: getattr(self, name) for name in names}

    def assigned(self, seed: int, round_number: int, clients: np.ndarray, again: int = 0) -> list[str | None]:
        """The fault of each client this round, or None. `again` tells later starts from one model from the first."""
        if self.until is not None and round_number >= self.until:
            return [None] * len(clients)
        # One uniform draw per client falls into one of the intervals of `edges`, or beyond them: then nothing fails.
        bits = random_bits(client_keys(seed, clients, "faults", round_number, *([again] if again else [])), 1)[:, 0]
        draws = (bits & np.iinfo(np.int64).max) / 2.0**63
        edges = np.cumsum(list(self._shares().values()))
        places = np.searchsorted(edges, draws, side="right")
        names = [*self._shares(), None]
        return [names[place] for place in places.tolist()]

    def kills(self, seed: int, round_number: int) -> bool:
        """Whether a worker is killed this round."""
        over = self.until is not None and round_number >= self.until
        return not over and generator(seed, "kill", round_number).random() < self.kill


def corrupted(groups: Groups, kind: str | None, delay: float) -> Groups:
    """The upload as a client with this fault would send it."""
    if kind == "slow":
        time.sleep(delay)
    if kind == "nan":
        return _changed(
            groups, lambda t: torch.cat([t.flatten()[:-1], t.new_full((1,), float("nan"))]).reshape(t.shape)
        )
    if kind == "infinite":
        return _changed(groups, lambda t: torch.full_like(t, float("inf")))
    if kind == "huge":
        return _changed(groups, lambda t: t * HUGE)
    if kind == "misshapen":
        return _changed(groups, lambda t: t.flatten()[:1])
    if kind == "renamed":
        return {group: {f"{name}x": t for name, t in tensors.items()} for group, tensors in groups.items()}
    return groups


def _changed(groups: Groups, change: Callable[[torch.Tensor], torch.Tensor]) -> Groups:
    return {
        group: {n: change(t) if t.is_floating_point() else t for n, t in ts.items()} for group, ts in groups.items()
    }
