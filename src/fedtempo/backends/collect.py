"""From trained clients to one sum: every backend, every worker and every node of a deployment goes through here.

The server only ever needs sums. So a block of clients is reduced to its `BlockSum` where it was trained, and the
traffic does not grow with the number of clients. Uploads are refused here, before they are added, by `refusal` in
`server/admission.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtempo.backends.backend import Backend, Block, Order, Trained, in_float64_together, on_host
from fedtempo.backends.memory import in_pieces_that_fit
from fedtempo.client.compression.packing import error_memory_in, without_error_memory
from fedtempo.client.objectives import Received
from fedtempo.client.optimizer_state import LAST_LOSS
from fedtempo.client.phase import Carry
from fedtempo.federation.federation import Federation
from fedtempo.federation.traffic import compress_upload
from fedtempo.params import Params, tensors_in, tree_map
from fedtempo.schedules import Now
from fedtempo.server.admission import Expected, delta_norm, refusal
from fedtempo.server.exact_sums import sum_of_rows
from fedtempo.server.fault_injection import corrupted
from fedtempo.server.policy import UploadPolicy
from fedtempo.server.sums import NOT_FINITE, BlockSum, Failure, Groups, addable

WAITING_BYTES = 2**26
"""Bytes of uploads that may wait on a device until they are read together."""
LOSS, SOUND, MEASURED, SEEN = "loss", "sound", "measured/", "samples/"
"""Names of facts, and what leads them."""


def run_blocks(
    federation: Federation,
    backend: Backend,
    order: Order,
    blocks: Iterable[Block],
    into: BlockSum,
    done: Callable[[], None] = lambda: None,
) -> BlockSum:
    """Train blocks of clients and add what they send to a sum; `done` is called after every block."""
    waiting: list[Ended] = []
    for block in blocks:
        # Clients side by side may not fit into memory. Such a block must leave no trace in the sum, so it gets one of
        # its own. Clients one by one cannot be cut in two, and their sum needs no copy.
        if len(block.clients) == 1 or not backend.stacks:
            _run_block(federation, backend, order, block, waiting, into)
        else:
            for part in in_pieces_that_fit(
                federation.notes, block, lambda few: _sum_of(federation, backend, order, few)
            ):
                into.add_block(part)
        done()
    _add(federation, order, waiting, into)
    return into


def _sum_of(federation: Federation, backend: Backend, order: Order, block: Block) -> BlockSum:
    waiting, into = list[Ended](), BlockSum()
    _run_block(federation, backend, order, block, waiting, into)
    _add(federation, order, waiting, into)
    return into


def _run_block(
    federation: Federation, backend: Backend, order: Order, block: Block, waiting: list[Ended], into: BlockSum
) -> None:
    """Train a block of clients and add what they send; on a device some may be left `waiting` to be read together."""
    own, before = block.personal, dict[int, Params]()
    if federation.algorithm.uploads.compress is not None:
        own = [without_error_memory(kept) for kept in own]
        before = dict(zip(block.clients.tolist(), block.personal, strict=True))
    for clients in backend.train(federation.problem, federation.program, order.received, order.now, block.clients, own):
        waiting.append(end(federation, order.received, clients, before))
        if federation.problem.device == "cpu" or sum(each.bytes for each in waiting) > WAITING_BYTES:
            _add(federation, order, waiting, into)
            waiting.clear()


def _add(federation: Federation, order: Order, ended: Sequence[Ended], into: BlockSum) -> None:
    compresses = federation.algorithm.uploads.compress is not None
    for each in read_together(federation, ended):
        finished = compressed(federation, each, order.now) if compresses else each
        # Most runs only need sums, and adding a whole stack at once is much faster. Only injected faults, rules of
        # admission and robust aggregators have to see uploads one by one. Absent clients send none that could be bad.
        if federation.policy is None or order.now.absent:
            _add_together(into, federation, finished)
        else:
            _add_one_by_one(into, federation, federation.policy, order, finished)


class Ended(NamedTuple):
    """Clients at the end of their rounds, before anything is read. Every tensor has one entry per client."""

    trained: Trained
    groups: Groups
    personal: Params
    facts: Params
    """Small tensors that the host has to know: losses, what was measured, which uploads can be added up."""
    before: Mapping[int, Params]
    """What each client kept when the round began."""

    @property
    def bytes(self) -> int:
        """The memory of what is sent and kept."""
        return sum(t.nbytes for t in (*tensors_in(self.groups), *self.personal.values()))


class Finished(NamedTuple):
    """What clients send and keep after a round. Every array and tensor has one entry per client."""

    trained: Trained
    groups: Groups
    personal: Params
    measured: dict[str, np.ndarray]
    losses: np.ndarray
    weights: np.ndarray
    sound: np.ndarray
    """Whose tensors can be added up: those that are sent, and those that a client keeps."""
    before: Mapping[int, Params]
    """What each client kept when the round began."""
    packed: tuple[Groups, ...] = ()
    """Each upload as it travels, where it is compressed; `groups` then is what the server reads."""

    @property
    def judged(self) -> list[Tensor]:
        """What clients keep, without their last loss: that is a number of the host, and finite."""
        return [tensor for name, tensor in self.personal.items() if name != LAST_LOSS]

    def refusal(
        self,
        lane: int,
        groups: Groups | None = None,
        expected: Expected | None = None,
        limit: float = math.inf,
    ) -> str | None:
        """Why a client does not count, by `refusal` of `server/admission.py`; `groups` stand in for its upload."""
        sent = self.upload(lane) if groups is None else groups
        return refusal(sent, float(self.weights[lane]), expected, limit, (tensor[lane] for tensor in self.judged))

    def upload(self, lane: int) -> Groups:
        """One client's upload."""
        return tree_map(lambda t: t[lane], self.groups)

    def kept(self, lane: int) -> Params:
        """One client's personal tensors, in their true shapes."""
        return self.trained.own(self.personal, lane)


def end(federation: Federation, received: Received, trained: Trained, before: Mapping[int, Params]) -> Ended:
    """The end of a client's round: its upload and what it keeps. Nothing waits for a device here."""
    program = federation.program
    if trained.stacked and program.elementwise:
        groups, personal, measured = program.finish(received, trained.carry)
    else:
        groups, personal, measured = trained.each(lambda carry: program.finish(received, carry))
    facts = {f"{MEASURED}{name}": values for name, values in measured.items()}
    facts |= {f"{SEEN}{i}": seen for i, seen in enumerate(trained.samples) if isinstance(seen, Tensor)}
    facts[LOSS] = trained.loss
    facts[SOUND] = addable((*tensors_in(groups), *personal.values()), len(trained.clients))
    # The weights of the last step are needed no more.
    return Ended(trained._replace(carry=Carry({}, {}, (), {})), groups, personal, facts, before)


def read_together(federation: Federation, ended: Sequence[Ended]) -> list[Finished]:
    """The same clients with what the host has to know, for which a device is waited for once."""
    arrays = iter(in_float64_together([fact for each in ended for fact in each.facts.values()]))
    return [_finished(federation, each, {name: next(arrays) for name in each.facts}) for each in ended]


def _finished(federation: Federation, ended: Ended, facts: dict[str, np.ndarray]) -> Finished:
    trained, personal = ended.trained, ended.personal
    samples = [np.asarray(facts.get(f"{SEEN}{i}", seen)) for i, seen in enumerate(trained.samples)]
    # `weighting="processed"` counts the samples that moved shared tensors. Steps on a personal head count nothing.
    stages = zip(federation.program.stages, samples, strict=True)
    processed = sum(seen for stage, seen in stages if stage.trained & federation.trained_names)
    weights = federation.weights(trained.clients, processed)
    measured = {name.removeprefix(MEASURED): values for name, values in facts.items() if name.startswith(MEASURED)}
    if federation.problem.keeps_loss:
        # A loss that is not finite refuses no update. The client goes on as if it had never seen one.
        personal = {**personal, LAST_LOSS: torch.from_numpy(np.nan_to_num(facts[LOSS], posinf=0.0, neginf=0.0))}
    sound = facts[SOUND] > 0
    return Finished(trained, ended.groups, personal, measured, facts[LOSS], weights, sound, ended.before)


def compressed(federation: Federation, finished: Finished, now: Now) -> Finished:
    """The clients after their uploads went through the algorithm's compressor, with their new memories of errors.

    A client whose tensors cannot be added is left as it is: its upload will be refused, and its memory stays what it
    was. So does that of an absent client, which sends nothing.
    """
    if not finished.groups:
        return finished
    sent, memories = [], []
    device = next(tensors_in(finished.groups)).device
    # Compressors work on bytes, which only the host sees.
    finished = finished._replace(groups=on_host(finished.groups))
    for lane, (client, sound) in enumerate(zip(finished.trained.clients.tolist(), finished.sound, strict=True)):
        groups, memory = finished.upload(lane), error_memory_in(finished.before.get(client, {}))
        if sound:
            groups, packed, after = compress_upload(federation, groups, memory, now.draw, client)
            memory = memory if now.absent else after
        else:
            packed = groups
        sent.append((groups, packed))
        memories.append(memory)
    groups = tree_map(lambda *lanes: torch.stack(lanes).to(device), *(groups for groups, _ in sent))
    memory = tree_map(lambda *lanes: torch.stack(lanes), *memories)
    lanes = len(finished.weights)
    (arrived,) = in_float64_together([addable((*tensors_in(groups), *memory.values()), lanes)])
    return finished._replace(
        groups=groups,
        personal={**finished.personal, **memory},
        sound=finished.sound & (arrived > 0),
        packed=tuple(packed for _, packed in sent),
    )


def _add_together(result: BlockSum, federation: Federation, finished: Finished) -> None:
    """Add all clients at once; of a client whose tensors cannot be added, only the failure is recorded."""
    sound = finished.sound
    clients = finished.trained.clients
    for lane in np.flatnonzero(~sound).tolist():
        result.failures.append(Failure(int(clients[lane]), finished.refusal(lane) or NOT_FINITE))
    lanes = np.flatnonzero(sound)
    if not len(lanes):
        return
    _count(result, federation, finished, lanes)
    unweighted = federation.algorithm.uploads.unweighted
    if len(clients) == 1:
        # One upload needs no stacked sum; adding it directly saves a copy of the model.
        result.add_upload(finished.upload(0), float(finished.weights[0]), unweighted)
    elif finished.groups:
        # Drop refused clients before summing. A weight of 0 would not do: 0 times NaN is NaN.
        groups = finished.groups if sound.all() else tree_map(lambda t: t[torch.from_numpy(lanes)], finished.groups)
        device = next(tensors_in(groups)).device
        factors = torch.from_numpy(finished.weights[lanes]).to(device)
        result.add_sums(
            {
                group: {n: sum_of_rows(t, None if group in unweighted else factors) for n, t in tensors.items()}
                for group, tensors in groups.items()
            }
        )


def _add_one_by_one(
    result: BlockSum, federation: Federation, policy: UploadPolicy, order: Order, finished: Finished
) -> None:
    """Add uploads in client order: inject faults, check admission. Of a refused client only the reason is recorded."""
    clients = finished.trained.clients
    # Which client fails how is drawn from seed, round and client. So the draw is the same wherever the client runs.
    kinds = policy.faults.assigned(federation.problem.seed, order.now.round, clients, order.now.again)
    for lane, (client, kind) in enumerate(zip(clients.tolist(), kinds, strict=True)):
        groups = corrupted(finished.upload(lane), kind, policy.faults.delay)
        reason = None
        if policy.admission.checks:
            reason = finished.refusal(lane, groups, federation.expected, order.limit)
        if reason is not None:
            result.failures.append(Failure(client, reason))
            continue
        _count(result, federation, finished, np.array([lane]))
        add_admitted(result, groups, float(finished.weights[lane]), federation, policy)


def _count(result: BlockSum, federation: Federation, finished: Finished, lanes: np.ndarray) -> None:
    """Record everything about accepted clients but their uploads: weights, losses, measurements, what they keep."""
    # Refused clients do not come here, so they also keep their personal state of the last round.
    measured = {name: values[lanes] for name, values in finished.measured.items()}
    result.add_clients(finished.weights[lanes], finished.losses[lanes], measured)
    kept = federation.kept_after(finished.personal)
    for lane in lanes.tolist() if kept else ():
        result.personal[int(finished.trained.clients[lane])] = finished.trained.own(kept, lane)


def add_admitted(result: BlockSum, groups: Groups, weight: float, federation: Federation, policy: UploadPolicy) -> None:
    """Add one accepted upload, clipped as the aggregator says, and keep what the aggregator needs of it."""
    groups = policy.aggregator.bounded(groups)
    if groups.get("delta"):
        result.norms.append(delta_norm(groups))
    if policy.aggregator.combine is not None:
        # Statistics of layers count as part of the displacement: a median of weights alone would let a client set them.
        result.each.append((weight, {**groups["delta"], **groups.get("buffers", {})}))
    result.add_upload(groups, weight, federation.algorithm.uploads.unweighted)
