"""Scoring users, block by block, on the engine that also trains them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedtempo.backends import Backend, Block, Engine
from fedtempo.backends.engine import BlockScores, PartScores
from fedtempo.backends.memory import in_pieces_that_fit
from fedtempo.client.compression.packing import without_error_memory
from fedtempo.client.objectives import Received
from fedtempo.data.parts import Part
from fedtempo.evaluation.protocol import Evaluation, Scores, UserScores
from fedtempo.evaluation.remembered import RememberedScores
from fedtempo.evaluation.rows import read_scores, unread_scores
from fedtempo.evaluation.serving import Served, served_phases, serves_as_held
from fedtempo.federation.federation import Federation
from fedtempo.params import Params
from fedtempo.schedules import Now

ANSWERED = "answered"
"""A score that only deployments have: 1 for users whose node answered. The others count as users without rows."""

MOST_OUTPUTS = 1 << 27
"""Numbers that the model returns for a block of users, half a gigabyte in float32."""


class EvaluationContext(NamedTuple):
    """What all users of one evaluation share."""

    received: Received
    now: Now
    parts: tuple[Part, ...]
    newcomers: bool
    protocol: Evaluation

    def score_block(self, federation: Federation, backend: Backend, block: Block) -> BlockScores:
        """Loss and scores of a block of users by part, before and after fine-tuning."""
        served = served_phases(federation, self.protocol, self.newcomers)
        # Before fine-tuning is a program without phases: the same code then gives the model that a user holds.
        before = self._scored(federation, backend, block, Served((), True))
        if serves_as_held(served, self.now):
            return before, before
        return before, self._scored(federation, backend, block, served)

    def _scored(self, federation: Federation, backend: Backend, block: Block, served: Served) -> PartScores:
        # The program is bound once and kept for all blocks and evaluations, and what it has recorded with it.
        key = (self.protocol, self.newcomers, served.as_kept, len(served.phases))
        program = federation.notes.program(key, lambda: federation.compile(served.phases, as_kept=served.as_kept))

        def scored(few: Block) -> PartScores:
            users = (federation.problem, program, self.received, self.now, few.clients, few.personal)
            unread = [[unread_scores(federation, one, part) for part in self.parts] for one in backend.train(*users)]
            return {
                part: read_scores(federation, blocks)
                for part, blocks in zip(self.parts, zip(*unread, strict=True), strict=True)
            }

        pieces = list(in_pieces_that_fit(federation.notes, block, scored))
        return {part: _joined([piece[part] for piece in pieces]) for part in self.parts}


@dataclass
class Evaluator:
    """Runs the protocol on a federation."""

    federation: Federation
    engine: Engine
    protocol: Evaluation
    block: int
    personal_of: Callable[[int], Params] = field(repr=False)
    memory: RememberedScores | None = None
    """Scores of existing users from earlier evaluations, where they may be taken over."""

    def scores(self, shared: Params, extra: Params, now: Now, *parts: Part) -> list[Scores]:
        """The scores of each part: of existing users, and of new users if the data hold some out.

        Users are fine-tuned once and then scored on all parts.
        """
        received = Received(shared, extra)
        data, protocol, seed = self.federation.problem.data, self.protocol, self.federation.problem.seed
        # A private run does not score training clients: a score is an exact function of the data that it protects.
        training = data.clients[:0] if self.federation.private else data.clients
        existing = protocol.sample(training, seed, "existing")
        pairs = self._users(EvaluationContext(received, now, parts, False, protocol), existing)
        metric = self.federation.problem.task.metric
        if not len(data.held_out):
            return [Scores(part, *pair, metric=metric) for part, pair in zip(parts, pairs, strict=True)]
        new = protocol.sample(data.held_out, seed, "new")
        new_pairs = self._users(EvaluationContext(received, now, parts, True, protocol), new)
        return [Scores(part, *p, *n, metric) for part, p, n in zip(parts, pairs, new_pairs, strict=True)]

    def _users(self, context: EvaluationContext, clients: np.ndarray) -> list[tuple[UserScores, UserScores]]:
        """Scores of these users before and after fine-tuning, part by part."""
        if self.memory is not None and not context.newcomers:
            return self._remembered(self.memory, context, clients)
        results = list(self.engine.score(context, self._blocks(context, clients)))
        return [
            (
                self._gathered([before[part] for before, _ in results], clients, part),
                self._gathered([after[part] for _, after in results], clients, part),
            )
            for part in context.parts
        ]

    def _remembered(
        self, memory: RememberedScores, context: EvaluationContext, clients: np.ndarray
    ) -> list[tuple[UserScores, UserScores]]:
        """As `_users`, for users who are not fine-tuned: only those whose model has changed are scored."""
        blocks = list(self._blocks(context, memory.unknown(clients, context.parts)))
        for block, (scores, _) in zip(blocks, self.engine.score(context, blocks), strict=True):
            memory.learn(block.clients, scores)
        metrics = ("loss", *self.federation.problem.task.scores)
        found = (self._gathered([memory.values(clients, part, metrics)], clients, part) for part in context.parts)
        return [(scores, scores) for scores in found]

    def _blocks(self, context: EvaluationContext, clients: np.ndarray) -> Iterator[Block]:
        # Users of a block are padded to the largest; with many rows and outputs fewer are scored side by side.
        problem = self.federation.problem
        most = max((int(problem.data.sizes(part)[clients].max()) for part in context.parts if len(clients)), default=1)
        block = max(1, min(self.block, MOST_OUTPUTS // max(1, most * problem.outputs_per_row)))
        for start in range(0, len(clients), block):
            together = clients[start : start + block]
            yield Block(together, self._personal(context, together))

    def _personal(self, context: EvaluationContext, clients: np.ndarray) -> list[Params]:
        if not context.newcomers:
            return [without_error_memory(self.personal_of(client)) for client in clients.tolist()]
        shared = context.received.shared
        return [without_error_memory(self.federation.first_personal(client, shared)) for client in clients.tolist()]

    def _gathered(self, scores: list[dict[str, np.ndarray]], clients: np.ndarray, part: Part) -> UserScores:
        samples = self.federation.problem.data.sizes(part)[clients]
        metrics = scores[0] if scores else ("loss", *self.federation.problem.task.scores)
        values = {m: np.concatenate([s[m] for s in scores] or [np.empty(0)]) for m in metrics}
        samples = samples * values.pop(ANSWERED, True)
        # A user without rows has no score. A 0 would make it the one that is served worst, or best.
        values = {name: np.where(samples > 0, found, np.nan) for name, found in values.items()}
        lower = self.federation.problem.task.lower_is_better
        return UserScores(clients, samples, values, self.protocol.interpolated, lower)


def _joined(blocks: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
