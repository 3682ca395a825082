"""Ray actors: workers on this machine or on many, one thread each, alive for the whole run.

An actor gets the federation once and keeps it. Per round the model is put once into the store that the actors of a
machine share, and a few sums come back, so what travels does not grow with the cohort. Personal tensors travel with
their block and come back with its sum: the driver's store has one writer. Sums are exact, so the bits are those of the
serial run whatever the number of actors. An actor that dies is replaced and its items are run again.
"""

from __future__ import annotations

import logging
import math
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self

import torch

from fedtempo.aggregation import BlockSum, total
from fedtempo.backends.engine import Engine, Summing, Work
from fedtempo.backends.processes import MOST_DEATHS, Hand, answered, dealt, dealt_for_sums
from fedtempo.backends.ray_cluster import Cluster, connected
from fedtempo.backends.trained import Backend
from fedtempo.backends.travelling import Luggage, packed, receive, send, unpacked
from fedtempo.errors import ConfigError, TrainingError, first_line
from fedtempo.federation import Federation

START_WITHIN_SECONDS = 60.0
FINEST_SHARE = 10_000
"""Ray counts shares of a GPU in these parts."""
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

    def run(self, kind: str, work: Work | Summing, ticket: int, common: Any, items: Any) -> tuple[str, Any]:
        """Work on items; `ticket` numbers what they share, which is unpacked once."""
        return answered(self._run, kind, work, ticket, common, items)

    def _run(self, kind: str, work: Callable[..., Any], ticket: int, common: Any, items: Any) -> Any:
        if ticket != self._ticket:
            self._common, self._ticket = unpacked(common, self._device), ticket
        mine = unpacked(items, self._device)
        about = self._federation, self._backend, self._common
        return packed(work(*about, mine, BlockSum()) if kind == "add" else [work(*about, item) for item in mine])


def made_with() -> str:
    """The versions that bits depend on."""
    return f"fedtempo {version('fedtempo')} with torch {torch.__version__.partition('+')[0]}"


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
        for indices, results in self._arrivals("map", work, common, dealt(list(enumerate(items)), len(self._actors))):
            done.update(zip(indices, results, strict=True))
            while next_index in done:
                yield done.pop(next_index)
                next_index += 1

    def add_up(self, work: Summing, common: Any, items: Iterable[Any]) -> BlockSum:
        """Actors add up what they did themselves, and their sums are added here as they come."""
        hands = dealt_for_sums(list(enumerate(items)), len(self._actors))
        return total(result for _, result in self._arrivals("add", work, common, hands))

    def _arrivals(
        self, kind: str, work: Work | Summing, common: Any, waiting: list[Hand]
    ) -> Iterator[tuple[list[int], Any]]:
        """Indices of items and what came of them, as it comes."""
        running: dict[Any, tuple[int, Hand]] = {}
        self._ticket += 1
        shared = self._put(packed(common)) if waiting else None
        while waiting or running:
            for slot in sorted(self._actors.keys() - {slot for slot, _ in running.values()}):
                if waiting:
                    hand = waiting.pop()
                    message = kind, work, self._ticket, shared, packed([item for _, item in hand])
                    running[self._ask(slot, *message)] = slot, hand
            for answer in self._ray.wait(list(running), num_returns=1)[0]:
                slot, hand = running.pop(answer)
                try:
                    result = unpacked(self._fetched(answer), self._federation.device)
                except _LostError as lost:
                    waiting.append(hand)
                    self._replace(slot, lost)
                else:
                    yield [index for index, _ in hand], result

    def _ask(self, slot: int, *message: Any) -> Any:
        return self._actors[slot].run.remote(*message)

    def _put(self, value: Any) -> Any:
        try:
            return self._ray.put(value)
        except (TypeError, AttributeError) as error:
            raise ConfigError(
                f"backend 'ray' must be able to send model, loss and algorithm to its workers. Got {first_line(error)}."
            ) from error

    def _fetched(self, answer: Any) -> Any:
        """What an actor answered; its errors as our own."""
        exceptions = self._ray.exceptions
        try:
            kind, value = self._ray.get(answer)
        except (exceptions.RayActorError, exceptions.ObjectLostError) as error:
            raise _LostError(first_line(error)) from error
        except exceptions.RayError as error:
            raise TrainingError(f"a worker failed: {str(error).strip().splitlines()[-1]}") from error
        if kind == "error":
            raise value
        return value

    def _replace(self, slot: int, lost: Exception) -> None:
        self.deaths += 1
        if self.deaths > MOST_DEATHS:
            raise TrainingError(f"run stopped: Ray's workers died {self.deaths} times. The last: {lost}") from lost
        _LOG.warning("Worker %d is replaced and what it had in hand is run again: %s", slot, lost)
        with suppress(Exception):  # it may be gone already
            self._ray.kill(self._actors.pop(slot))
        self._start([slot])


class _LostError(Exception):
    """An actor went away before it answered, or its answer did."""
