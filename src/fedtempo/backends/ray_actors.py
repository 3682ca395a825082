"""Ray actors: workers on this machine or on many, one thread each, alive for the whole run.

An actor gets the federation once and keeps it. Per round the model is put once into the store that the actors of a
machine share. Sums stay there too, and are added up by the actors until a few are left for the driver, so what comes
back grows neither with the cohort nor with the number of actors. Personal tensors travel with their block and come back
with its numbers: the driver's store has one writer. Sums are exact, so the bits are those of the serial run. An actor
that dies is replaced and its items are run again.
"""

from __future__ import annotations

import logging
import math
import platform
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib.metadata import version
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from fedtempo.backends.block import Backend
from fedtempo.backends.engine import Engine, Summing, Work
from fedtempo.backends.processes import MOST_DEATHS, Hand, answered, dealt, dealt_for_sums
from fedtempo.backends.ray_cluster import Cluster, connected
from fedtempo.backends.shipment import Luggage, packed, receive, send, unpacked
from fedtempo.errors import ConfigError, TrainingError, first_line
from fedtempo.federation.federation import Federation
from fedtempo.server.sums import BlockSum

START_WITHIN_SECONDS = 60.0
FINEST_SHARE = 10_000
"""Ray counts shares of a GPU in these parts."""
MOST_SUMS = 8
"""Sums that the driver fetches in a round at the most, and that an actor adds up at once."""
_LOG = logging.getLogger(__name__)


class Actor:
    """What runs on the other side: a federation, and the latest message that all items share."""

    def __init__(self, backend: Backend) -> None:
        torch.set_num_threads(1)
        self._backend = backend
        self._ticket = -1
        self._common: Any = None

    def open(self, luggage: Luggage, gpu: bool) -> tuple[str, Any]:
        """Unpack the federation; the answer says what the numbers will be made with."""
        self._device = "cuda" if gpu else "cpu"
        return answered(self._opened, luggage)

    def _opened(self, luggage: Luggage) -> str:
        if self._device != "cpu" and not torch.cuda.is_available():
            raise ConfigError(f"ray_gpus must be 0 where torch has no GPU. Got a share of one on {platform.node()}.")
        self._federation = receive(luggage, self._device)
        return made_with()

    def each(self, work: Work, ticket: int, common: Any, items: Any) -> tuple[tuple[str, Any], None]:
        """Work on items one by one; the second value is always None."""
        return answered(lambda: [packed(work(*self._about(ticket, common), item)) for item in self._mine(items)]), None

    def add(self, work: Summing, ticket: int, common: Any, items: Any) -> tuple[tuple[str, Any], Any]:
        """Work on items and add up; the sums come apart from the rest, for whoever fetches them."""
        kind, value = answered(lambda: packed(work(*self._about(ticket, common), self._mine(items), BlockSum())))
        return ((kind, replace(value, sums={})), value.sums) if kind == "result" else ((kind, value), None)

    def merge(self, *sums: Any) -> tuple[tuple[str, None], Any]:
        """Sums added up."""
        whole = BlockSum()
        for each in sums:
            whole.add_sums(unpacked(each))
        return ("result", None), packed(whole.sums)

    def _about(self, ticket: int, common: Any) -> tuple[Federation, Backend, Any]:
        """What all items share; the ticket numbers it, so that it is unpacked once."""
        if ticket != self._ticket:
            self._common, self._ticket = unpacked(common, self._device), ticket
        return self._federation, self._backend, self._common

    def _mine(self, items: Any) -> Any:
        return unpacked(items, self._device)


def made_with() -> str:
    """The versions that bits depend on."""
    return f"fedtempo {version('fedtempo')} with torch {torch.__version__.partition('+')[0]}"


class Part(NamedTuple):
    """A part of a round's sum that lies in Ray's store, with the rest of what came of its hands."""

    slot: int
    hands: list[Hand]
    numbers: list[BlockSum]
    sums: Any


class RayActors(Engine):
    """An engine of Ray actors; no number of workers is one for every processor of the cluster."""

    def __init__(self, federation: Federation, backend: Backend, workers: int, cluster: Cluster | None = None) -> None:
        self._federation = federation
        self._backend = backend
        self._workers = workers
        self._cluster = cluster or Cluster()
        self._actors: dict[int, Any] = {}
        self._ticket = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._ray = stack.enter_context(connected(self._cluster.address, self._workers))
            stack.callback(self._stop)
            count, share = self._places()
            self._gpu = share > 0
            self._make = self._ray.remote(num_cpus=1, num_gpus=share, max_restarts=0)(Actor)
            self._luggage = self._put(send(self._federation, self._cluster.loader))
            self._start(range(count))
            self._until_the_end = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._until_the_end.close()

    def _stop(self) -> None:
        for actor in self._actors.values():
            with suppress(Exception):  # of a cluster that is gone
                self._ray.kill(actor)
        self._actors, self._luggage = {}, None

    def _places(self) -> tuple[int, float]:
        """How many actors, and the share of a GPU for each."""
        has, share = self._ray.cluster_resources(), self._cluster.gpus
        processors, gpus = int(has.get("CPU", 0)), has.get("GPU", 0.0)
        if share and not gpus:
            raise ConfigError(f"ray_gpus must be 0 on a cluster without GPUs. Got {share}.")
        most = min(processors, int(gpus / share)) if share else processors
        count = self._workers or max(1, most)
        if share is None:
            wanted = self._federation.device != "cpu"
            share = min(1.0, math.floor(FINEST_SHARE * gpus / count) / FINEST_SHARE) if wanted else 0.0
        return count, share

    def _start(self, slots: Iterable[int]) -> None:
        """Start actors and wait for them; the run goes on without those that the cluster has no room for."""
        opening = {}
        for slot in slots:
            actor = self._make.remote(self._backend)
            opening[actor.open.remote(self._luggage, self._gpu)] = (slot, actor)
        ready, late = self._ray.wait(list(opening), num_returns=len(opening), timeout=START_WITHIN_SECONDS)
        for answer in ready:
            slot, actor = opening[answer]
            try:
                self._check(self._fetched(answer))
                self._actors[slot] = actor
            except _LostError as lost:
                self._replace(slot, lost)
        for answer in late:
            self._ray.kill(opening[answer][1])
        if late:
            _LOG.warning("Ray has no room for %d of %d workers; going on without.", len(late), len(opening))
        if not self._actors:
            raise TrainingError(
                f"run stopped: the Ray cluster had no room for a worker in {START_WITHIN_SECONDS:.0f} seconds."
            )

    def _check(self, theirs: str) -> None:
        if theirs != made_with():
            raise ConfigError(f"the Ray cluster must have {made_with()}, as here. Got {theirs}.")

    def map(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[Any]:
        """Deal items to whoever is free, the larger part at once; yield results in the items' order."""
        done: dict[int, Any] = {}
        next_index = 0
        hands = dealt(list(enumerate(items)), len(self._actors))
        for _, hand, results, _ in self._arrivals("each", work, common, hands):
            done.update(zip((index for index, _ in hand), results, strict=True))
            while next_index in done:
                yield done.pop(next_index)
                next_index += 1

    def add_up(self, work: Summing, common: Any, items: Iterable[Any]) -> BlockSum:
        """Actors add up what they did, then each other's sums; what goes lost on the way is done again."""
        waiting = dealt_for_sums(list(enumerate(items)), len(self._actors))
        result = BlockSum()
        while waiting:
            arrived = self._arrivals("add", work, common, waiting)
            parts = [Part(slot, [hand], [numbers], sums) for slot, hand, numbers, sums in arrived]
            for part in self._merged(parts):
                try:
                    result.add_sums(unpacked(self._got(part.sums), self._federation.device))
                except _LostError as lost:
                    self._count(lost)
                    waiting += part.hands
                else:
                    for numbers in part.numbers:
                        result.add_block(numbers)
        return result

    def _merged(self, parts: list[Part]) -> list[Part]:
        """The same sums in few parts, added up by neighbours. Where that fails they stay apart."""
        while len(parts) > MOST_SUMS:
            ordered = sorted(parts, key=lambda part: part.slot)
            groups = [ordered[start : start + MOST_SUMS] for start in range(0, len(ordered), MOST_SUMS)]
            asked = [self._ask(group[0].slot, "merge", *(part.sums for part in group)) for group in groups]
            parts = []
            for group, (said, sums) in zip(groups, asked, strict=True):
                try:
                    self._fetched(said)
                except (_LostError, TrainingError):
                    return [*parts, *(part for late in groups[groups.index(group) :] for part in late)]
                hands, numbers = [h for part in group for h in part.hands], [n for part in group for n in part.numbers]
                parts.append(Part(group[0].slot, hands, numbers, sums))
        return parts

    def _arrivals(
        self, kind: str, work: Work | Summing, common: Any, waiting: list[Hand]
    ) -> Iterator[tuple[int, Hand, Any, Any]]:
        """Who did which hand, what came of it, and where its sums are, as it comes."""
        running: dict[Any, tuple[int, Hand, Any]] = {}
        self._ticket += 1
        shared = self._put(packed(common)) if waiting else None
        while waiting or running:
            for slot in sorted(self._actors.keys() - {slot for slot, *_ in running.values()}):
                if waiting:
                    hand = waiting.pop()
                    items = packed([item for _, item in hand])
                    answer, sums = self._ask(slot, kind, work, self._ticket, shared, items)
                    running[answer] = slot, hand, sums
            for answer in self._ray.wait(list(running), num_returns=1)[0]:
                slot, hand, sums = running.pop(answer)
                try:
                    result = unpacked(self._fetched(answer), self._federation.device)
                except _LostError as lost:
                    waiting.append(hand)
                    self._replace(slot, lost)
                else:
                    yield slot, hand, result, sums

    def _ask(self, slot: int, method: str, *message: Any) -> Any:
        actor = self._actors[slot] if slot in self._actors else next(iter(self._actors.values()))
        return getattr(actor, method).options(num_returns=2).remote(*message)

    def _put(self, value: Any) -> Any:
        try:
            return self._ray.put(value)
        except (TypeError, AttributeError) as error:
            raise ConfigError(
                f"backend 'ray' must be able to send model, loss and algorithm to its workers. Got {first_line(error)}."
            ) from error

    def _fetched(self, answer: Any) -> Any:
        """What an actor answered, or the error that it met."""
        kind, value = self._got(answer)
        if kind == "error":
            raise value
        return value

    def _got(self, reference: Any) -> Any:
        """What lies in Ray's store; Ray's errors as our own."""
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except (exceptions.RayActorError, exceptions.ObjectLostError) as error:
            raise _LostError(first_line(error)) from error
        except exceptions.RayError as error:
            raise TrainingError(f"a worker failed: {str(error).strip().splitlines()[-1]}") from error

    def kill_worker(self) -> None:
        """Kill the actor that is the next to get work."""
        self._ray.kill(self._actors[min(self._actors)])

    def _count(self, lost: Exception) -> None:
        self.deaths += 1
        if self.deaths > MOST_DEATHS:
            raise TrainingError(f"run stopped: Ray's workers died {self.deaths} times. The last: {lost}") from lost
        _LOG.warning("A worker is lost and what it had in hand is run again: %s", lost)

    def _replace(self, slot: int, lost: Exception) -> None:
        self._count(lost)
        with suppress(Exception):  # it may be gone already
            self._ray.kill(self._actors.pop(slot))
        self._start([slot])


class _LostError(Exception):
    """An actor went away before it answered, or its answer did."""
