"""Ray actors: workers on this machine or on many, one thread each, alive for the whole run.

An actor gets the federation once and keeps it. Per round the model is put once into the store that the actors of a
machine share. Sums stay there too, and are added up by the actors until a few are left for the driver, so what comes
back grows neither with the cohort nor with the number of actors. Personal tensors travel with their block and come back
with its numbers: the driver's store has one writer. Sums are exact, so the bits are those of the serial run.

An actor is on its way (it waits for a place, then loads the federation) or it works. Nobody waits for those on their
way: what an actor that died was working on goes to the others at once, and processors that join the cluster are used as
soon as they are there.
"""

from __future__ import annotations

import logging
import math
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from fedtempo.backends.backend import Backend, Block, Order
from fedtempo.backends.engine import BlockScores, EngineStatus, Scoring
from fedtempo.backends.pace import Pace
from fedtempo.backends.processes import MOST_DEATHS, chunked, chunked_for_sums, clients_in_words
from fedtempo.backends.ray_cluster import Cluster, HeadLostError, connected
from fedtempo.backends.ray_worker import Actor, made_with
from fedtempo.backends.shipment import modules_by_value, packed, sending, serialise, unpacked
from fedtempo.backends.worker import Chunk
from fedtempo.errors import ConfigError, TrainingError, WorkersLostError, first_line
from fedtempo.federation.federation import Federation
from fedtempo.server.sums import BlockSum, Failure

ROOM_WITHIN_SECONDS = 60.0
"""A cluster that has no processor free for so long is full."""
LOADED_WITHIN_SECONDS = 600.0
"""An actor that has its processor loads torch and gets the federation; on a busy machine that takes minutes."""
FINEST_SHARE = 10_000
"""Ray divides a GPU into this many parts, so shares are rounded down to one."""
HEAD_ANSWERS_WITHIN_SECONDS = 5.0
HEAD_GONE_AFTER_SECONDS = 20.0
"""A head that refuses connections for so long is gone. Ray itself ends the program after 60 seconds."""
SECONDS_BETWEEN_PLACES = 0.05
DEATHS_TO_SUSPECT = 2
"""After so many deaths over the same clients one of them is suspected."""
LIFE = "life"
"""The thread of an actor that says how far it is."""
MOST_SUMS = 8
"""Sums that the driver fetches in a round at the most, and that an actor adds up at once."""
_LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")


class Errand(NamedTuple):
    """Blocks that go to an actor together, and how often an actor was lost over them."""

    chunk: Chunk
    lost: int = 0
    alone: bool = False
    """Whether this is one client, which runs apart to see whether it is the one that ends its worker."""


class PartialSum(NamedTuple):
    """A part of a round's sum that lies in Ray's store, with the other numbers of its chunks."""

    slot: int
    chunks: list[Chunk]
    numbers: list[BlockSum]
    sums: Any


class Living(NamedTuple):
    """An actor that works, and the machine that it is on."""

    actor: Any
    node: str


@dataclass
class Coming:
    """An actor on its way: it waits for a place, then it gets the federation."""

    room: Any
    since: float
    actor: Any = None
    answer: Any = None


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
        self._living: dict[int, Living] = {}
        self._coming: dict[int, Coming] = {}
        self._rooms: dict[int, Any] = {}
        self._blocks_done: dict[int, int] = {}
        self._asked_how_far: dict[int, Any] = {}
        self._deaths_in_a_row = 0
        self._head_seen = time.monotonic()
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
            # No restarts by Ray: a restarted actor would have lost its federation, so we start a new one. It says how
            # far it is in a thread of its own.
            self._ray.method(concurrency_group=LIFE)(Actor.blocks_done)
            options = {"num_cpus": 1, "num_gpus": share, "max_restarts": 0, "concurrency_groups": {LIFE: 1}}
            self._make = self._ray.remote(**options)(Actor)
            self._needs = {"CPU": 1.0, "GPU": share} if share else {"CPU": 1.0}
            self._shipment = self._put(serialise(self._federation, self._cluster.loader))
            self._ask_for(range(count))
            self._gather()
            self._until_the_end = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._until_the_end.close()

    def _stop(self) -> None:
        head = self._head_answers()
        actors = [living.actor for living in self._living.values()]
        actors += [coming.actor for coming in self._coming.values() if coming.actor is not None]
        rooms = [*self._rooms.values(), *(coming.room for coming in self._coming.values())]
        for actor in actors if head else []:  # a cluster whose head is gone ends its actors itself
            with suppress(Exception):
                self._ray.kill(actor)
        for room in rooms if head else []:
            with suppress(Exception):
                self._ray.util.remove_placement_group(room)
        self._living, self._coming, self._rooms, self._shipment = {}, {}, {}, None

    def _places(self) -> tuple[int, float]:
        """How many actors, and the share of a GPU for each."""
        has, share = self._of_head(self._ray.cluster_resources), self._cluster.gpus
        processors, gpus = int(has.get("CPU", 0)), has.get("GPU", 0.0)
        if share and not gpus:
            raise ConfigError(f"ray_gpus must be 0 on a cluster without GPUs. Got {share}.")
        most = min(processors, int(gpus / share)) if share else processors
        count = self._workers or max(1, most)
        if share is None:
            wanted = self._federation.problem.device != "cpu"
            share = min(1.0, math.floor(FINEST_SHARE * gpus / count) / FINEST_SHARE) if wanted else 0.0
        return count, share

    def _ask_for(self, slots: Iterable[int]) -> None:
        """Ask for an actor in each slot. A place that a dead actor left is kept for the next one."""
        for slot in slots:
            room = self._rooms.get(slot) or self._of_head(partial(self._ray.util.placement_group, [self._needs]))
            self._coming[slot] = Coming(room, time.monotonic())

    def _advance(self) -> None:
        """Take every actor that is on its way one step further, if it can go; nobody waits here."""
        for slot, coming in list(self._coming.items()):
            if coming.actor is None and self._where(coming.room)["state"] == "CREATED":
                self._rooms[slot] = coming.room
                place = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(coming.room)
                coming.actor = self._make.options(scheduling_strategy=place).remote(self._backend)
                coming.answer = coming.actor.open.remote(self._shipment, self._gpu)
                coming.since = time.monotonic()
            elif coming.actor is not None and self._ray.wait([coming.answer], timeout=0)[0]:
                self._arrived(slot, coming)
            elif coming.actor is not None and self._is_stuck(coming):
                self._give_up(slot, coming)

    def _where(self, room: Any) -> dict[str, Any]:
        """What Ray says of a reserved place."""
        found: dict[str, Any] = self._of_head(partial(self._ray.util.placement_group_table, room))
        return found

    def _arrived(self, slot: int, coming: Coming) -> None:
        del self._coming[slot]
        try:
            theirs, node, machine = self._fetched(coming.answer)
        except _LostError as lost:
            self._lost(slot, Living(coming.actor, ""), lost)
            return
        if theirs != made_with():
            raise ConfigError(f"the Ray cluster must have {made_with()}, as here. Got {theirs} on {machine}.")
        self._living[slot] = Living(coming.actor, node)

    def _is_stuck(self, coming: Coming) -> bool:
        """Whether an actor that loads will not come: its machine is gone, or it has had minutes."""
        waited = time.monotonic() - coming.since
        if waited < self._pace.glance:
            return False
        node = next(iter(self._where(coming.room).get("bundles_to_node_id", {}).values()), "")
        return waited > LOADED_WITHIN_SECONDS or node in self._dead_nodes()

    def _give_up(self, slot: int, coming: Coming) -> None:
        """Ask for another place: this one is on a machine that is gone, or too slow."""
        with suppress(Exception):
            self._ray.kill(coming.actor)
        self._leave_room(slot)
        del self._coming[slot]
        if time.monotonic() - coming.since > LOADED_WITHIN_SECONDS:
            _LOG.warning("A Ray worker did not start in %.0f seconds; going on without it.", LOADED_WITHIN_SECONDS)
        else:
            self._ask_for([slot])

    def _leave_room(self, slot: int) -> None:
        with suppress(Exception):
            self._ray.util.remove_placement_group(self._rooms.pop(slot))

    def _dead_nodes(self) -> set[str]:
        return {node["NodeID"] for node in self._of_head(self._ray.nodes) if not node["Alive"]}

    def _gather(self) -> None:
        """Wait until there is an actor, and for the others as long as they come."""
        end = time.monotonic() + ROOM_WITHIN_SECONDS
        while self._coming:
            self._advance()
            without_room = sum(coming.actor is None for coming in self._coming.values())
            if not self._coming or (without_room == len(self._coming) and time.monotonic() > end):
                break
            self._look(self._openings())
        if self._coming:
            _LOG.warning("Ray has no room for %s", self._without_room())
        if not self._living and self._coming:
            seconds = f"{ROOM_WITHIN_SECONDS:.0f} seconds"
            raise WorkersLostError(
                f"run stopped: the Ray cluster had no room for a worker in {seconds}. Ray has no room for "
                f"{self._without_room(going_on=False)}"
            )
        if not self._living:
            raise WorkersLostError(f"run stopped: no Ray worker started in {LOADED_WITHIN_SECONDS:.0f} seconds.")

    def _without_room(self, going_on: bool = True) -> str:
        """Who has the processors, and which setting helps."""
        has, free = (self._of_head(ask) for ask in (self._ray.cluster_resources, self._ray.available_resources))
        missing, count = len(self._coming), len(self._coming) + len(self._living)
        own = len(self._living)
        others = int(has.get("CPU", 0) - free.get("CPU", 0.0)) - own
        why = f"other programs have {others} of its {int(has.get('CPU', 0))} processors"
        ways = f"workers={own or 1} asks for fewer, or wait for the other programs to end"
        goes_on = f" The run goes on with {own}, and with more when there is room." if going_on else ""
        return f"{missing} of {count} workers: {why}.{goes_on} {ways[0].upper()}{ways[1:]}."

    def _openings(self) -> list[Any]:
        """What actors that load will answer."""
        return [coming.answer for coming in self._coming.values() if coming.actor is not None]

    def _look(self, references: list[Any]) -> list[Any]:
        """Wait for one of these, a glance at the most; returns what is ready. An error where the head is gone."""
        if not references:  # actors that wait for a place have nothing yet that Ray could wait for
            time.sleep(SECONDS_BETWEEN_PLACES)
            return []
        ready: list[Any] = self._ray.wait(references, num_returns=1, timeout=self._pace.glance)[0]
        if not ready:
            self._check_head()
        return ready

    def _head_answers(self) -> bool:
        if self._ray.util.client.ray.is_connected():
            return True  # by a client's connection, which says itself that it is lost
        host, _, port = self._ray.get_runtime_context().gcs_address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), HEAD_ANSWERS_WITHIN_SECONDS).close()
        except OSError:
            return False
        return True

    def _of_head(self, question: Callable[[], Answer]) -> Answer:
        """What the head answers. It is asked in a thread: from a head that is gone nothing comes back."""
        answers: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put(question())
            except Exception as error:
                answers.put(error)

        threading.Thread(target=ask, daemon=True).start()
        while True:
            try:
                answer = answers.get(timeout=self._pace.glance)
            except queue.Empty:
                self._check_head()
                continue
            if isinstance(answer, Exception):
                raise answer
            return answer

    def _check_head(self) -> None:
        """Ray would end this program with words of its own a minute after its head is gone."""
        if self._head_answers():
            self._head_seen = time.monotonic()
        elif time.monotonic() - self._head_seen > HEAD_GONE_AFTER_SECONDS:
            raise HeadLostError("run stopped: the head of the Ray cluster is gone, and with it all workers.")

    def score(self, scoring: Scoring, blocks: Iterable[Block]) -> Iterator[BlockScores]:
        """Score blocks on whichever actor is free; yield the scores in the order of the blocks."""
        done: dict[int, BlockScores] = {}
        next_index = 0
        chunks = chunked(list(enumerate(blocks)), len(self._living))
        for _, chunk, results, _ in self._arrivals("score", scoring, chunks):
            done.update(zip((index for index, _ in chunk), results, strict=True))
            while next_index in done:
                yield done.pop(next_index)
                next_index += 1

    def train(self, order: Order, blocks: Iterable[Block]) -> BlockSum:
        """Train blocks: actors sum what they trained, then each other's sums. What is lost on the way runs again."""
        waiting = chunked_for_sums(list(enumerate(blocks)), len(self._living))
        result = BlockSum()
        while waiting:
            arrived = self._arrivals("train", order, waiting)
            parts = [PartialSum(slot, [chunk], [numbers], sums) for slot, chunk, numbers, sums in arrived]
            waiting = []
            for part in self._merged([part for part in parts if part.sums is not None]):
                try:
                    result.add_sums(unpacked(self._got(part.sums), self._federation.problem.device))
                except _LostError as lost:
                    # A machine is gone, with the sums in its memory: all chunks behind this sum run again.
                    _LOG.warning("Sums of %d chunks are lost and run again: %s", len(part.chunks), lost)
                    waiting += part.chunks
                else:
                    # Numbers are added only together with their sums, so that no client counts twice or by half.
                    for numbers in part.numbers:
                        result.add_block(numbers)
            for part in parts:
                if part.sums is None:  # a client that ended its worker has no sums, and is counted as failed
                    result.add_block(part.numbers[0])
        return result

    def _merged(self, parts: list[PartialSum]) -> list[PartialSum]:
        """The same sums in at most `MOST_SUMS` parts, merged by the actors. If a merge fails, its parts stay apart."""
        while len(parts) > MOST_SUMS and self._living:
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

    def _arrivals(self, kind: str, common: Any, chunks: list[Chunk]) -> Iterator[tuple[int, Chunk, Any, Any]]:
        """Give out chunks; yield (actor, chunk, its numbers, the reference to its sums) as answers arrive."""
        waiting = [Errand(chunk) for chunk in chunks]
        running: dict[Any, tuple[int, Errand, Any]] = {}
        self._use_what_joined()
        # The ticket tells an actor whether it has unpacked this round's model already.
        self._ticket += 1
        shared = self._put(packed(common)) if waiting else None
        while waiting or running:
            self._advance()
            for slot in sorted(self._living.keys() - {slot for slot, *_ in running.values()}):
                if waiting:
                    task = waiting.pop()
                    blocks = packed([block for _, block in task.chunk])
                    answer, sums = self._ask(slot, kind, self._ticket, shared, blocks)
                    running[answer] = slot, task, sums
                    self._pace.started(slot, self._blocks_done.get(slot, 0))
            if not running:
                self._gather_some()
                continue
            answered, hung = self._ready(running)
            for answer in (*answered, *hung):
                slot, task, sums = running.pop(answer)
                try:
                    if answer in hung:
                        raise _LostError("it gave no sign of life")
                    result = unpacked(self._fetched(answer), self._federation.problem.device)
                except _LostError as lost:
                    again, failed = self._after_a_loss(kind, task, lost)
                    waiting += again
                    self._lost(slot, self._living.pop(slot), lost, task)
                    yield from ((slot, task.chunk, BlockSum(failures=[each]), None) for each in failed)
                else:
                    self._deaths_in_a_row = 0
                    self._pace.finished(slot, len(task.chunk))
                    yield slot, task.chunk, result, sums

    def _use_what_joined(self) -> None:
        """Ask for the actors that are missing: processors may be free now, or a machine may have joined."""
        count, _ = self._places()
        taken = self._living.keys() | self._coming.keys()
        self._ask_for([slot for slot in range(max(count, len(taken))) if slot not in taken][: count - len(taken)])

    def _gather_some(self) -> None:
        """Nobody is left: wait for the first of those that are on their way."""
        _LOG.warning("All Ray workers are lost; waiting for %d that were asked for.", len(self._coming))
        end = time.monotonic() + LOADED_WITHIN_SECONDS
        while not self._living:
            if not self._coming or time.monotonic() > end:
                raise WorkersLostError(f"run stopped: no Ray worker came in {LOADED_WITHIN_SECONDS:.0f} seconds.")
            self._look(self._openings())
            self._advance()

    def _after_a_loss(self, kind: str, task: Errand, lost: Exception) -> tuple[list[Errand], list[Failure]]:
        """What runs again. After the second death over the same clients each runs alone, to find the one that fails."""
        clients = [client for _, block in task.chunk for client in block.clients.tolist()]
        if task.lost + 1 < DEATHS_TO_SUSPECT or kind == "score":
            return [task._replace(lost=task.lost + 1)], []
        if task.alone or len(clients) == 1:
            words = f"it ended or stopped its worker {DEATHS_TO_SUSPECT} times: {lost}"
            return [], [Failure(clients[0], words)]
        return [Errand([(index, one)], 0, True) for index, block in task.chunk for one in block.singly()], []

    def _ready(self, running: dict[Any, tuple[int, Errand, Any]]) -> tuple[list[Any], list[Any]]:
        """Wait for an answer; returns the answers that are there, and those of actors that hang."""
        while True:
            found = self._look([*running, *self._openings()])
            answered = [answer for answer in found if answer in running]
            late = self._pace.hung(self._how_far([slot for slot, *_ in running.values()]))
            hung = [answer for answer, (slot, *_) in running.items() if slot in late and answer not in answered]
            if answered or hung or found:
                return answered, hung

    def _how_far(self, slots: Sequence[int]) -> dict[int, int]:
        """The blocks that actors have finished since their start, as far as they have said so."""
        for slot in slots:
            if slot not in self._asked_how_far and slot in self._living:
                self._asked_how_far[slot] = self._living[slot].actor.blocks_done.remote()
        waiting = list(self._asked_how_far.items())
        ready, _ = self._ray.wait([answer for _, answer in waiting], num_returns=len(waiting), timeout=0)
        for slot, answer in waiting:
            if answer in ready:
                del self._asked_how_far[slot]
                with suppress(Exception):  # an actor that is gone is noticed where its work is waited for
                    self._blocks_done[slot] = int(self._ray.get(answer))
        return {slot: self._blocks_done.get(slot, 0) for slot in slots}

    def _ask(self, slot: int, method: str, *message: Any) -> Any:
        living = self._living[slot] if slot in self._living else next(iter(self._living.values()))
        return getattr(living.actor, method).options(num_returns=2).remote(*message)

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
        while True:
            try:
                return self._ray.get(reference, timeout=HEAD_GONE_AFTER_SECONDS)
            except exceptions.GetTimeoutError:
                self._check_head()
            except (exceptions.RayActorError, exceptions.ObjectLostError) as error:
                raise _LostError(first_line(error)) from error
            except exceptions.RayError as error:
                raise TrainingError(f"a worker failed: {str(error).strip().splitlines()[-1]}") from error

    def kill_worker(self) -> None:
        """Kill the actor that is the next to get work."""
        self._ray.kill(self._living[min(self._living)].actor)

    def _lost(self, slot: int, living: Living, lost: Exception, task: Errand | None = None) -> None:
        """Forget an actor that died or hangs, and ask for another in its place, or elsewhere if its machine is gone."""
        self.status.replaced += 1
        self._deaths_in_a_row += 1
        self._asked_how_far.pop(slot, None)
        self._blocks_done.pop(slot, None)
        with suppress(Exception):  # it may be gone already
            self._ray.kill(living.actor)
        # A machine takes all of its actors with it, so everybody may die once before it counts.
        if self._deaths_in_a_row > MOST_DEATHS + len(self._living) + len(self._coming):
            on = f", working on {clients_in_words(task.chunk)}" if task else ""
            times = f"{self._deaths_in_a_row} times in a row"
            raise WorkersLostError(f"run stopped: Ray's workers died {times}. The last: {lost}{on}.") from lost
        if living.node in self._dead_nodes():
            self._leave_room(slot)
        self._ask_for([slot])
        _LOG.warning(
            "A worker is lost: %s. Its blocks go to the %d that work; a new worker is asked for (%d on their way).",
            lost,
            len(self._living),
            len(self._coming),
        )


class _LostError(Exception):
    """An actor went away before it answered, or its answer did."""
