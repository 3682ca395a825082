"""The roster: which node holds which client, and the way to the nodes. It knows nothing of Flower."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.deploy.membership.agreement import Agreement, agree, is_complete
from fedtempo.deploy.membership.census import LONGEST, Census, data_of, read_census
from fedtempo.deploy.membership.declared import left_out
from fedtempo.deploy.wire import WireError
from fedtempo.errors import DataError, TrainingError
from fedtempo.training.log import LOGGER

CENSUS_SECONDS = 120.0
"""How long a node may take to load its data and say what they are."""
RETRY_SECONDS = 60.0
"""How long a node that was refused, or did not say who it is, is left alone. A round waits for nobody like that."""
BETWEEN_LOOKS = 0.5
NOT_CONNECTED = "not connected"
REASONS = 10
"""Refused nodes that an error names."""


class Request(NamedTuple):
    """What a node is asked: to be counted, to train, to score or to settle, for these clients in this order."""

    kind: str
    parts: list[bytes]
    clients: Sequence[int] = ()
    most: int = 0
    """Bytes that its answer may have."""


class Reply(NamedTuple):
    """A node's answer: one part per client asked for, or the reason why there is none."""

    node: int
    asked: Sequence[int]
    parts: list[bytes]
    error: str = ""
    gone: bool = False
    """Whether the node went away before it could answer."""

    @property
    def surplus(self) -> str:
        """What is wrong with a reply that has more parts than clients: nobody can say which of them count."""
        surplus = len(self.parts) > len(self.asked)
        return f"{len(self.parts)} answers for {len(self.asked)} clients" if surplus else ""

    def answers(self) -> Iterator[tuple[int, bytes]]:
        """Each client's part."""
        return zip(self.asked, self.parts, strict=False)


class Transport(Protocol):
    """A way to nodes."""

    def nodes(self) -> list[int]:
        """The nodes that are connected now."""
        ...

    def name(self, node: int) -> str:
        """What a node is called in lines for people."""
        ...

    def exchange(self, requests: Mapping[int, Request], seconds: float | None) -> Iterator[Reply]:
        """Ask nodes and yield their replies as they come, for at most so many seconds."""
        ...


class Roster:
    """Counts nodes as they come, and finds clients. A client stays with its first node while that is connected."""

    def __init__(
        self,
        transport: Transport,
        experiment: str,
        patience: float,
        declared: Mapping[str, Census] | None = None,
        without: Iterable[str] = (),
    ) -> None:
        """`declared` is what nodes said when the run began, and `without` those of them that it goes on without."""
        self._transport = transport
        self._experiment = experiment
        self._patience = patience
        self._counted: dict[int, Census] = {}
        self._refused: dict[int, tuple[str, float]] = {}
        self._known: FederatedData | None = None
        self._form = ""
        self._gathered = False
        self._said = ""
        # Nodes that the run goes on without hold their clients still, under numbers that no node has.
        away = left_out(declared or {}, without).values()
        self._away = {-place: census for place, census in enumerate(away, start=1)}
        if declared:
            self._agree_on(declared.values())
        self._one_at_a_time = threading.Lock()
        """An asynchronous server asks from several threads; nodes are counted by one of them."""

    def name(self, node: int) -> str:
        """What a node is called in lines for people."""
        return self._transport.name(node)

    def gather(self, clients: int | None) -> FederatedData:
        """Wait until all clients are here, and return what the server knows of them.

        How many there are is given, or nodes that hold a share of a common data set say so.
        """
        end = time.monotonic() + self._patience
        while True:
            connected = self._count(lambda counted: is_complete({**counted, **self._away}, clients))
            agreement = agree({**{node: self._counted[node] for node in connected}, **self._away}, clients)
            if agreement.complete:
                break
            if time.monotonic() > end:
                raise TrainingError(self._too_few(agreement))
            self._say_who_is_missing(agreement)
            time.sleep(BETWEEN_LOOKS)
        for node, reason in agreement.objections.items():  # only now: before, who is right could still change
            if node not in self._away:
                self._refuse(node, reason)
        self._counted = agreement.nodes
        self._gathered = True
        if self._known is None:
            self._agree_on(agreement.nodes.values())
        assert self._known is not None
        return self._known

    def _agree_on(self, nodes: Iterable[Census]) -> None:
        """From here on a client has these rows, on whatever node it is."""
        found = list(nodes)
        self._form, self._known = found[0].form, data_of(found)

    def declared(self) -> dict[str, Census]:
        """What the nodes that a run begins with have said, by their names."""
        return {self.name(node): census for node, census in self._counted.items()}

    def _say_who_is_missing(self, agreement: Agreement) -> None:
        line = f"{self._found(agreement)}{agreement.missing()}"
        if line != self._said:
            self._said = line
            LOGGER.info("waiting: %s", line)

    def _found(self, agreement: Agreement) -> str:
        # Before the first node has come, nobody may have said how many clients there are.
        here = len(agreement.here)
        return f"{here} of {agreement.clients} clients" if agreement.clients else f"{here or 'no'} clients"

    def places(self, clients: Collection[int], end: float | None = None) -> dict[int, list[int]]:
        """The clients by the connected nodes that hold them; where nobody is here, wait for somebody."""
        end = time.monotonic() + self._patience if end is None else end
        while True:
            with self._one_at_a_time:
                found = self._held(clients, set(self._transport.nodes()))
                if sum(map(len, found.values())) < len(clients):  # only then: a new node may take long to say who it is
                    found = self._held(clients, set(self._count()))
            if found or time.monotonic() > end:
                return found
            time.sleep(BETWEEN_LOOKS)

    def _held(self, clients: Iterable[int], connected: set[int]) -> dict[int, list[int]]:
        nodes = [node for node in self._counted if node in connected]
        owner = {number: node for node in reversed(nodes) for number in self._counted[node].numbers}
        found: dict[int, list[int]] = {}
        for client in sorted(clients):
            if client in owner:
                found.setdefault(owner[client], []).append(client)
        return found

    def ask(
        self,
        clients: Collection[int],
        request: Callable[[list[int]], Request],
        seconds: float | None,
        failures: dict[int, str],
    ) -> Iterator[Reply]:
        """Ask the nodes that hold these clients, and yield their answers; all other clients become failures.

        Where every node has gone away before it answered, wait for one to come back and ask again, as at the start of
        a round. All these waits together take at most the patience that the server was started with.
        """
        places, end = self.places(clients), math.inf
        while True:
            held = {client for own in places.values() for client in own}
            failures.update({client: NOT_CONNECTED for client in clients if client not in held})
            gone = 0
            for reply in self._transport.exchange({node: request(own) for node, own in places.items()}, seconds):
                gone += reply.gone
                reason = reply.error or reply.surplus
                if reason:
                    failures.update(dict.fromkeys(reply.asked, reason))
                else:
                    yield reply
            if gone < len(places) or not places or time.monotonic() > end:
                return
            LOGGER.warning("all nodes have gone; waiting for one to come back")
            end = min(end, time.monotonic() + self._patience)
            time.sleep(BETWEEN_LOOKS)
            places = self.places(clients, end)
            if not places:
                return
            for client in clients:  # they are asked again
                failures.pop(client, None)

    def _count(self, enough: Callable[[Mapping[int, Census]], bool] = lambda counted: False) -> list[int]:
        """Ask nodes that are new who they are; return those that are connected and counted, oldest first.

        Nobody waits for the others as soon as there are enough.
        """
        connected, now = set(self._transport.nodes()), time.monotonic()
        waiting = {node for node, (_, until) in self._refused.items() if until > now}
        new = sorted(connected - self._counted.keys() - waiting)
        seconds = CENSUS_SECONDS / 4 if self._gathered else CENSUS_SECONDS
        silent = set(new)
        for reply in self._transport.exchange({node: Request("census", [], most=LONGEST) for node in new}, seconds):
            silent.discard(reply.node)
            try:
                if reply.error or len(reply.parts) != 1:
                    raise WireError(reply.error or "a census must be one answer.")
                self._counted[reply.node] = self._checked(read_census(reply.parts[0]), connected)
            except (WireError, DataError) as error:
                self._refuse(reply.node, str(error))
            if enough({node: census for node, census in self._counted.items() if node in connected}):
                silent = set()
                break
        for node in silent:
            self._refuse(node, "it did not say who it is.")
        return [node for node in self._counted if node in connected]

    def _refuse(self, node: int, reason: str) -> None:
        if self._refused.get(node, ("",))[0] != reason:
            LOGGER.warning("%s is refused: %s", self._transport.name(node), reason)
        self._refused[node] = (reason, time.monotonic() + RETRY_SECONDS)

    def _checked(self, census: Census, connected: set[int]) -> Census:
        """A census that is possible by itself and, during a run, fits what was agreed at its start."""
        if census.experiment != self._experiment:
            raise DataError("it was started for another experiment.")
        if self._known is None:
            return census
        self._check_unchanged(census, self._known)
        for node, other in self._counted.items():
            both = set(census.numbers) & set(other.numbers)
            if both and node in connected:
                raise DataError(f"client {min(both)} is on another node already.")
        return census

    def _check_unchanged(self, census: Census, known: FederatedData) -> None:
        """A node that joins during a run brings clients that were there at its start, with as many rows."""
        if max(census.numbers) >= len(known):
            raise DataError(f"client {max(census.numbers)} must be below {len(known)}, the number of clients.")
        if census.form != self._form:
            raise DataError(f"its columns must be those of the run, {self._form}. Got {census.form}.")
        other = np.flatnonzero((np.diff(known.bounds[census.numbers]) != census.rows).any(axis=1))
        if len(other):
            client, rows = census.numbers[other[0]], census.rows[other[0]]
            before = tuple(np.diff(known.bounds[client]).tolist())
            raise DataError(
                f"client {client} must have the rows of the run's start, {before} for training, validation and test. "
                f"It has {rows}."
            )

    def _too_few(self, agreement: Agreement) -> str:
        away = {node: reason for node, (reason, _) in self._refused.items()} | agreement.objections
        refused = "".join(
            f"; {self._transport.name(node)} was refused: {reason}" for node, reason in islice(away.items(), REASONS)
        )
        found = f"{self._found(agreement)} connected in {self._patience:g} s"
        return f"run not started: {found}{agreement.missing()}{refused}"
