"""The engine of a deployment: it sends orders to nodes and turns what comes back into sums and scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

import numpy as np

from fedtempo.backends import Block, Order
from fedtempo.backends.collect import add_admitted
from fedtempo.backends.engine import BlockScores, EngineStatus, PartScores, Scoring
from fedtempo.client.objectives import Received
from fedtempo.data.parts import Part
from fedtempo.deploy.gate import Gate, UploadError, upload_form
from fedtempo.deploy.membership.roster import Reply, Request, Roster
from fedtempo.deploy.orders import (
    NodeTask,
    RemoteOrder,
    answer_bytes,
    failure_from_bytes,
    order_to_bytes,
    scores_from_bytes,
    scores_layout,
    settled_from_bytes,
    tasks_to_bytes,
)
from fedtempo.deploy.wire import NOTHING_KEPT, Upload, WireError
from fedtempo.evaluation.scoring import ANSWERED
from fedtempo.params import Params, select
from fedtempo.server.admission import Admission, refused_scores
from fedtempo.server.policy import UploadPolicy
from fedtempo.server.sums import BlockSum, Failure
from fedtempo.training.experiment import Experiment
from fedtempo.training.log import LOGGER
from fedtempo.training.result import Result
from fedtempo.training.saved import Which
from fedtempo.training.state import RECEIPT, digest_of, receipt

NO_ANSWER = "no answer"
SETTLE_SECONDS = 300.0
"""How long nodes have, at the end of a run without a deadline, to keep what it leaves."""
LATE = "late: enough others had answered"


class RemoteEngine:
    """Runs the training loop's work on nodes."""

    def __init__(self, experiment: Experiment, roster: Roster, run: bytes) -> None:
        self._experiment = experiment
        self._federation = experiment.federation
        self._roster = roster
        self._run = run
        self._form = upload_form(experiment.federation)
        self.status = EngineStatus()

    # ------------------------------------------------------------------ training

    def train(self, order: Order, blocks: Iterable[Block]) -> BlockSum:
        """Ask every client on the node that holds it, and add up what counts."""
        tasks = {task.client: task for block in blocks for task in _tasks(*block)}
        gate = Gate(self._federation, self._form, order.now.draw, tasks.keys(), order.limit)
        whole = self._sent(order.received)
        sent = whole if order.packed is None else whole._replace(shared=order.packed)
        body = order_to_bytes(RemoteOrder(self._run, sent, order.now))
        uploads: dict[int, Upload] = {}
        failures: dict[int, str] = {}
        result = BlockSum()
        enough = round(order.now.cohort) if self._experiment.over_selection else len(tasks)
        each = answer_bytes(self._form.layout)
        for reply in self._ask("train", [body], tasks, failures, self._experiment.deadline, each):
            for client, data in reply.answers():
                try:
                    upload = _upload(gate, client, data)
                except WireError as error:
                    failures[client] = str(error)
                    continue
                if result.clients + len(uploads) >= enough:
                    failures[client] = LATE
                elif self._federation.policy is None:
                    self._add(result, upload)
                else:
                    uploads[client] = upload
            if result.clients + len(uploads) >= enough:
                break
        for client in sorted(uploads):  # looked at one by one: in client order, whatever order they came in
            self._add(result, uploads[client])
        complete = result.clients >= enough
        for client in tasks.keys() - gate.inbox.seen:  # whoever did not report in time
            failures.setdefault(client, LATE if complete and self._experiment.over_selection else self._no_answer)
        result.failures += [Failure(client, reason) for client, reason in failures.items()]
        return result

    def _add(self, result: BlockSum, upload: Upload) -> None:
        numbers = {name: np.array([value]) for name, value in upload.measurements.items()}
        result.add_clients(np.array([upload.weight]), np.array([upload.loss]), numbers)
        if self._form.keeps:
            result.personal[upload.client] = receipt(upload.kept)
        policy = self._federation.policy or UploadPolicy()
        add_admitted(result, upload.groups, upload.weight, self._federation, policy)

    # ------------------------------------------------------------------ scoring

    def score(self, scoring: Scoring, blocks: Iterable[Block]) -> Iterator[BlockScores]:
        """Ask every user on the node that holds it; one without an answer is left out of the statistics."""
        asked = list(blocks)
        tasks = {task.client: task for block in asked for task in _tasks(*block)}
        parts, metrics = scoring.parts, ("loss", *self._federation.problem.task.scores)
        received = self._sent(scoring.received)
        body = order_to_bytes(RemoteOrder(self._run, received, scoring.now, scoring.newcomers, parts))
        scores: dict[int, np.ndarray] = {}
        senders: dict[int, int] = {}
        each = answer_bytes(scores_layout(len(parts), len(metrics)))
        for reply in self._ask("score", [body], tasks, {}, self._experiment.deadline, each):
            for client, data in reply.answers():
                try:
                    scored, round_number, values = scores_from_bytes(data, len(parts), len(metrics))
                except WireError:  # a user without scores is left out of the statistics
                    continue
                if (scored, round_number) == (client, scoring.now.round):
                    scores[client], senders[client] = values.numpy(), reply.node
        for client, reason in refused_scores(scores, self._federation.problem.task.bounds, self._admission).items():
            del scores[client]
            sender = self._roster.name(senders[client])
            LOGGER.warning("scores of client %d, from %s, are left out: %s", client, sender, reason)
        nothing = np.zeros((2, len(parts), len(metrics)))
        for clients, *_ in asked:
            found = np.stack([scores.get(client, nothing) for client in clients.tolist()], axis=-1)
            answered = np.array([client in scores for client in clients.tolist()])
            yield _named(found[0], parts, metrics, answered), _named(found[1], parts, metrics, answered)

    # ------------------------------------------------------------------ the end

    def settle(self, result: Result) -> dict[int, str]:
        """Tell the nodes which states of their clients are of the selected and of the last round, with the models.

        Returns the clients whose node did not keep them, and why. Where clients keep nothing there is nothing to tell.
        """
        if not self._form.keeps:
            return {}
        server = self._federation.algorithm.server
        bodies = [
            order_to_bytes(RemoteOrder(self._run, self._sent(Received(result.served(which), extra)), at.now))
            for which, at in ((which, result.at(which)) for which in get_args(Which))
            for extra in [server.extra(at.server)]
        ]
        clients = self._federation.problem.data.clients
        states = ([result.client_state(c, which) for c in clients.tolist()] for which in ("last", "selected"))
        tasks = {task.client: task for task in _tasks(clients, *states)}
        failures: dict[int, str] = {}
        waiting = set(tasks)
        # Without a deadline one node that hangs would keep a finished run from ending.
        seconds = self._experiment.deadline or SETTLE_SECONDS
        for reply in self._ask("settle", bodies, tasks, failures, seconds, answer_bytes()):
            for client, data in reply.answers():
                try:
                    if settled_from_bytes(data) == client:
                        waiting.discard(client)
                except WireError as error:
                    failures[client] = failure_from_bytes(data) or str(error)
        return {client: failures.get(client, NO_ANSWER) for client in sorted(waiting)}

    # ------------------------------------------------------------------ nodes

    def _sent(self, received: Received) -> Received:
        """What nodes do not have: tensors that no round changes came with the experiment they built."""
        return Received(select(received.shared, self._federation.moving_names), received.extra)

    @property
    def _admission(self) -> Admission:
        policy = self._federation.policy
        return Admission() if policy is None else policy.admission

    @property
    def _no_answer(self) -> str:
        deadline = self._experiment.deadline
        return NO_ANSWER if deadline is None else f"{NO_ANSWER} within the deadline of {deadline:g} s"

    def _ask(
        self,
        kind: str,
        bodies: Sequence[bytes],
        tasks: Mapping[int, NodeTask],
        failures: dict[int, str],
        seconds: float | None,
        each: int,
    ) -> Iterator[Reply]:
        """Ask every node for its clients. Clients of nodes that are away or answer with an error are failures."""
        if not tasks:  # an empty cohort, or nobody to score: there is nobody to wait for
            return iter(())

        def request(clients: list[int]) -> Request:
            parts = [*bodies, tasks_to_bytes([tasks[client] for client in clients])]
            return Request(kind, parts, clients, most=each * len(clients))

        return self._roster.ask(tasks, request, seconds, failures)


def _tasks(clients: np.ndarray, kept: Sequence[Params], selected: Sequence[Params]) -> Iterator[NodeTask]:
    for index, client in enumerate(clients.tolist()):
        yield NodeTask(client, *(_hash(states[index] if states else {}) for states in (kept, selected)))


def _hash(tensors: Params) -> bytes:
    """The hash in a receipt. A client without one has the tensors that it started with, or keeps none."""
    return digest_of(tensors) if RECEIPT in tensors else NOTHING_KEPT


def _upload(gate: Gate, client: int, data: bytes) -> Upload:
    """The client's upload, or an error that says why there is none that counts."""
    failed = failure_from_bytes(data)
    if failed is not None:
        raise UploadError(failed or NO_ANSWER)
    return gate.admit(data, client)


def _named(values: np.ndarray, parts: Iterable[Part], metrics: Iterable[str], answered: np.ndarray) -> PartScores:
    return {
        part: {**dict(zip(metrics, by_metric, strict=True)), ANSWERED: answered}
        for part, by_metric in zip(parts, values, strict=True)
    }
