"""Where personal state lives between rounds: the protocol, and the store in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from fedtempo.params import Params
from fedtempo.training.round_report import RoundReport
from fedtempo.training.state import State
from fedtempo.training.storage.kinds import Kinds
from fedtempo.training.storage.selected_round import Changes, Selected


class Store(Protocol):
    """Keeps personal tensors between rounds, and whatever is needed to go on after a crash."""

    def get(self, client: int, selected: bool = False) -> Params | None:
        """A client's personal tensors now, or as of the selected round; None before its first round."""
        ...

    @property
    def planned(self) -> int | None:
        """The rounds that a stored run was to have when it began; None where it is this run."""
        ...

    @property
    def kinds(self) -> Kinds:
        """The kinds of processor that a stored run was on."""
        ...

    @property
    def selected(self) -> Selected | None:
        """The state of the round that validation has selected; None if it has selected none."""
        ...

    def commit(self, state: State, personal: Mapping[int, Params], report: RoundReport) -> None:
        """Keep everything a round leaves behind: all of it, or nothing."""
        ...

    def items(self) -> Iterator[tuple[int, Params]]:
        """All clients seen so far, in ascending order."""
        ...

    def close(self) -> None:
        """Write what is still waiting, and release the store to others."""
        ...


class MemoryStore:
    """Personal tensors of the clients seen so far, in memory."""

    def __init__(self) -> None:
        self._states: dict[int, Params] = {}
        self._aside: dict[int, Params | None] = {}
        self.selected: Selected | None = None
        self.planned: int | None = None
        self.kinds = Kinds()

    def get(self, client: int, selected: bool = False) -> Params | None:
        """A client's personal tensors now, or as of the selected round; None before its first round."""
        return self._aside[client] if selected and client in self._aside else self._states.get(client)

    def commit(self, state: State, personal: Mapping[int, Params], report: RoundReport) -> None:
        """Keep what this round's clients ended with, and what they had in the selected round."""
        if report.selects:
            self.selected, self._aside = Selected(report.round, state), {}
        elif self.selected is not None:
            for client in personal:
                self._aside.setdefault(client, self._states.get(client))
        self._states.update(personal)

    def items(self) -> Iterator[tuple[int, Params]]:
        """All clients seen so far, in ascending order."""
        return iter(sorted(self._states.items()))

    def close(self) -> None:
        """Nothing to close."""


class Saved(NamedTuple):
    """What a stopped run left: its state after the last committed round, and the reports up to it."""

    state: State
    history: list[RoundReport]
    lost: int = 0
    """Committed rounds after it that are lost."""


class Waiting(NamedTuple):
    """Rounds that wait for the next write (`commit_every`): the newest state, what clients keep, the reports."""

    round: int
    state: State
    personal: dict[int, Params]
    reports: list[str]
    selection: Changes
