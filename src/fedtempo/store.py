"""Where personal state lives between rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedtempo.params import Params


class MemoryStore:
    """Personal tensors of the clients seen so far, in memory."""

    def __init__(self) -> None:
        self._states: dict[int, Params] = {}

    def get(self, client: int) -> Params | None:
        """A client's personal tensors, or None before its first round."""
        return self._states.get(client)

    def put(self, states: Mapping[int, Params]) -> None:
        """Keep what this round's clients ended with."""
        self._states.update(states)

    def items(self) -> Iterator[tuple[int, Params]]:
        """All clients seen so far, in ascending order."""
        return iter(sorted(self._states.items()))
