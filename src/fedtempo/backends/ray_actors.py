"""Ray actors: workers on this machine or on many, one thread each, alive for the whole run.

An actor gets the federation once and keeps it. Per round the model is put once into the store that the actors of a
machine share. Sums stay there too, and are added up by the actors until a few are left for the driver, so what comes
back grows neither with the cohort nor with the number of actors. Personal tensors travel with their block and come back
with its numbers: the driver's store has one writer. Sums are exact, so the bits are those of the serial run. An actor
that dies is replaced and its blocks are run again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from fedtempo.backends.backend import Backend, Block, Order
from fedtempo.backends.engine import BlockScores, EngineStatus, Scoring
from fedtempo.backends.pace import Pace
from fedtempo.backends.processes import MOST_DEATHS, chunked, chunked_for_sums
from fedtempo.backends.ray_cluster import Cluster, connected
from fedtempo.backends.ray_worker import Actor, made_with
from fedtempo.backends.shipment import modules_by_value, packed, sending, serialise, unpacked
from fedtempo.backends.worker import Chunk
from fedtempo.errors import ConfigError, TrainingError, first_line
from fedtempo.federation.federation import Federation
from fedtempo.server.sums import BlockSum

ROOM_WITHIN_SECONDS = 60.0
"""A cluster that has no processor free for so long is full."""
LOADED_WITHIN_SECONDS = 600.0
"""An actor that has its processor loads torch and gets the federation; on a busy machine that takes minutes."""
FINEST_SHARE = 10_000
"""Ray divides a GPU into this many parts, so shares are rounded down to one."""
MOST_SUMS = 8
"""Sums that the driver fetches in a round at the most, and that an actor adds up at once."""
_LOG = logging.getLogger(__name__)


class PartialSum(NamedTuple):
    """A part of a round's sum that lies in Ray's store, with the other numbers of its chunks."""

    slot: int
    chunks: list[Chunk]
    numbers: list[BlockSum]
    sums: Any


class RayActors:
    """An engine of Ray actors; `workers=0` starts one for every processor of the cluster."""

    def __init__(
        self,
        federation: Federation,
        backend: Backend,
        workers: int,
        cluster: Cluster | None = None,
        timeout: float | None = None,
    ) -> None:
        self._federation = federation
        self._backend = backend
        self._workers = workers
        self._cluster = cluster or Cluster()
        self._actors: dict[int, Any] = {}
        self._rooms: dict[int, Any] = {}
        self._ticket = 0
        self._pace = Pace(timeout)
        self.status = EngineStatus()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._ray = stack.enter_context(connected(self._cluster.address, self._workers))
            stack.callback(self._stop)
            for module in modules_by_value():
                self._ray.cloudpickle.register_pickle_by_value(module)
            count, share = self._places()
            self._gpu = share > 0
            # No restarts by Ray: a restarted actor would have lost its federation, so `_replace` makes a new one.
            self._make = self._ray.remote(num_cpus=1, num_gpus=share, max_restarts=0)(Actor)
            self._needs = {"CPU": 1.0, "GPU": share} if share else {"CPU": 1.0}
            self._shipment = self._put(serialise(self._federation, self._cluster.loader))
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
        for room in self._rooms.values():
            with suppress(Exception):
                self._ray.util.remove_placement_group(room)
        self._actors, self._rooms, self._shipment = {}, {}, None

    def _places(self) -> tuple[int, float]:
        """How many actors, and the share of a GPU for each."""
        has, share = self._ray.cluster_resources(), self._cluster.gpus
        processors, gpus = int(has.get("CPU", 0)), has.get("GPU", 0.0)
        if share and not gpus:
            raise ConfigError(f"ray_gpus must be 0 on a cluster without GPUs. Got {share}.")
        most = min(processors, int(gpus / share)) if share else processors
        count = self._workers or max(1, most)
        if share is None:
            wanted = self._federation.problem.device != "cpu"
            share = min(1.0, math.floor(FINEST_SHARE * gpus / count) / FINEST_SHARE) if wanted else 0.0
        return count, share

    def _start(self, slots: Iterable[int]) -> None:
        """Start actors and wait for them. The run goes on without those that the cluster has no room for."""
        opening = {}
        for slot in self._with_room(list(slots)):
            place = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(self._rooms[slot])
            actor = self._make.options(scheduling_strategy=place).remote(self._backend)
            opening[actor.open.remote(self._shipment, self._gpu)] = (slot, actor)
        ready, late = self._ray.wait(list(opening), num_returns=len(opening), timeout=LOADED_WITHIN_SECONDS)
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
            _LOG.warning("%d of %d Ray workers did not start; going on without.", len(late), len(opening))
        if not self._actors:
            raise TrainingError(f"run stopped: no Ray worker started in {LOADED_WITHIN_SECONDS:.0f} seconds.")

    def _with_room(self, slots: list[int]) -> list[int]:
        """Reserve a place for each actor. A replaced actor's place is kept for the next one."""
        # A reservation starts no process. So a full cluster can be told from one whose processes start slowly.
        asked = {slot: self._ray.util.placement_group([self._needs]) for slot in slots if slot not in self._rooms}
        end = time.monotonic() + ROOM_WITHIN_SECONDS
        for slot, room in asked.items():
            if room.wait(max(0.0, end - time.monotonic())):
                self._rooms[slot] = room
            else:
                self._ray.util.remove_placement_group(room)
        found = [slot for slot in slots if slot in self._rooms]
        if len(found) < len(slots):
            _LOG.warning("Ray has no room for %d of %d workers; going on without.", len(slots) - len(found), len(slots))
        if not found and not self._actors:
            raise TrainingError(
                f"run stopped: the Ray cluster had no room for a worker in {ROOM_WITHIN_SECONDS:.0f} seconds."
            )
        return found

    def _check(self, theirs: str) -> None:
        if theirs != made_with():
            raise ConfigError(f"the Ray cluster must have {made_with()}, as here. Got {theirs}.")

    def score(self, scoring: Scoring, blocks: Iterable[Block]) -> Iterator[BlockScores]:
        """Score blocks on whichever actor is free; yield the scores in the order of the blocks."""
        done: dict[int, BlockScores] = {}
        next_index = 0
        chunks = chunked(list(enumerate(blocks)), len(self._actors))
        for _, chunk, results, _ in self._arrivals("score", scoring, chunks):
            done.update(zip((index for index, _ in chunk), results, strict=True))
            while next_index in done:
                yield done.pop(next_index)
                next_index += 1

    def train(self, order: Order, blocks: Iterable[Block]) -> BlockSum:
        """Train blocks: actors sum what they trained, then each other's sums. What is lost on the way runs again."""
        waiting = chunked_for_sums(list(enumerate(blocks)), len(self._actors))
        result = BlockSum()
        while waiting:
            arrived = self._arrivals("train", order, waiting)
            parts = [PartialSum(slot, [chunk], [numbers], sums) for slot, chunk, numbers, sums in arrived]
            for part in self._merged(parts):
                try:
                    result.add_sums(unpacked(self._got(part.sums), self._federation.problem.device))
                except _LostError as lost:
                    # A machine is gone, with the sums in its memory: all chunks behind this sum run again.
                    self._count(lost)
                    waiting += part.chunks
                else:
                    # Numbers are added only together with their sums, so that no client counts twice or by half.
                    for numbers in part.numbers:
                        result.add_block(numbers)
        return result

    def _merged(self, parts: list[PartialSum]) -> list[PartialSum]:
        """The same sums in at most `MOST_SUMS` parts, merged by the actors. If a merge fails, its parts stay apart."""
        while len(parts) > MOST_SUMS:
            # Sorted by actor: neighbours are often on one machine, and sums then need not travel.
            ordered = sorted(parts, key=lambda part: part.slot)
            groups = [ordered[start : start + MOST_SUMS] for start in range(0, len(ordered), MOST_SUMS)]
            asked = [self._ask(group[0].slot, "merge", *(part.sums for part in group)) for group in groups]
            parts = []
            for group, (said, sums) in zip(groups, asked, strict=True):
                try:
                    self._fetched(said)
                except (_LostError, TrainingError):
                    return [*parts, *(part for late in groups[groups.index(group) :] for part in late)]
                chunks = [chunk for part in group for chunk in part.chunks]
                numbers = [each for part in group for each in part.numbers]
                parts.append(PartialSum(group[0].slot, chunks, numbers, sums))
        return parts

    def _arrivals(self, kind: str, common: Any, waiting: list[Chunk]) -> Iterator[tuple[int, Chunk, Any, Any]]:
        """Give out chunks; yield (actor, chunk, its numbers, the reference to its sums) as answers arrive."""
        running: dict[Any, tuple[int, Chunk, Any]] = {}
        # The ticket tells an actor whether it has unpacked this round's model already.
        self._ticket += 1
        shared = self._put(packed(common)) if waiting else None
        while waiting or running:
            for slot in sorted(self._actors.keys() - {slot for slot, *_ in running.values()}):
                if waiting:
                    chunk = waiting.pop()
                    blocks = packed([block for _, block in chunk])
                    answer, sums = self._ask(slot, kind, self._ticket, shared, blocks)
                    running[answer] = slot, chunk, sums
                    self._pace.started(slot, len(chunk))
            answered, hung = self._ready(running)
            for answer in (*answered, *hung):
                slot, chunk, sums = running.pop(answer)
                try:
                    if answer in hung:
                        raise _LostError("it gave no sign of life")
                    result = unpacked(self._fetched(answer), self._federation.problem.device)
                except _LostError as lost:
                    waiting.append(chunk)
                    self._replace(slot, lost)
                else:
                    self._pace.finished(slot, len(chunk))
                    yield slot, chunk, result, sums

    def _ready(self, running: dict[Any, tuple[int, Chunk, Any]]) -> tuple[list[Any], list[Any]]:
        """Wait for an answer; returns the answers that are there, and those that are overdue."""
        while True:
            answered = self._ray.wait(list(running), num_returns=1, timeout=self._pace.glance)[0]
            late = self._pace.overdue({slot: len(chunk) for slot, chunk, _ in running.values()})
            hung = [answer for answer, (slot, *_) in running.items() if slot in late and answer not in answered]
            if answered or hung:
                return answered, hung

    def _ask(self, slot: int, method: str, *message: Any) -> Any:
        actor = self._actors[slot] if slot in self._actors else next(iter(self._actors.values()))
        return getattr(actor, method).options(num_returns=2).remote(*message)

    def _put(self, value: Any) -> Any:
        with sending("backend 'ray'"):
            return self._ray.put(value)

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
        self.status.replaced += 1
        if self.status.replaced > MOST_DEATHS:
            times = f"{self.status.replaced} times"
            raise TrainingError(f"run stopped: Ray's workers died {times}. The last: {lost}") from lost
        _LOG.warning("A worker is lost and its blocks are run again: %s", lost)

    def _replace(self, slot: int, lost: Exception) -> None:
        self._count(lost)
        with suppress(Exception):  # it may be gone already
            self._ray.kill(self._actors.pop(slot))
        self._start([slot])


class _LostError(Exception):
    """An actor went away before it answered, or its answer did."""
