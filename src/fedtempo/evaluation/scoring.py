"""Scoring users, block by block, on whatever engine the run has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtempo.backends import Backend, Block, Engine, Trained, serial
from fedtempo.evaluation.protocol import Evaluation, Part, Scores, UserScores
from fedtempo.evaluation.serving import served_phases
from fedtempo.federation.federation import Federation
from fedtempo.objectives import Received
from fedtempo.params import Params
from fedtempo.schedules import Now
from fedtempo.tasks import Batch, hide_padded_outputs

Sums = dict[Part, dict[str, np.ndarray]]
ANSWERED = "answered"
"""Where users are on other machines: among their sums, who has answered. The others count as users without samples."""


class EvaluationContext(NamedTuple):
    """What all users of one evaluation share."""

    received: Received
    now: Now
    parts: tuple[Part, ...]
    newcomers: bool
    protocol: Evaluation

    def score_block(self, federation: Federation, backend: Backend, block: Block) -> tuple[Sums, Sums]:
        """Sums of loss and scores of a block of users by part, before and after fine-tuning."""
        code = backend if federation.problem.task.per_sample else serial
        served = served_phases(federation, self.protocol, self.now, self.newcomers)
        sums: list[Sums] = []
        for phases, as_kept in (((), True), served):
            program = federation.compile(phases, as_kept=as_kept)
            users = (federation.problem, program, self.received, self.now, block.clients, block.personal)
            trained = list(code.train(*users))
            sums.append(
                {part: _joined([_score_block(federation, one, part) for one in trained]) for part in self.parts}
            )
        return sums[0], sums[1]


@dataclass
class Evaluator:
    """Runs the protocol on a federation."""

    federation: Federation
    engine: Engine
    protocol: Evaluation
    block: int
    personal_of: Callable[[int], Params] = field(repr=False)

    def scores(self, shared: Params, extra: Params, now: Now, *parts: Part) -> list[Scores]:
        """Evaluate existing users, and new ones where the data hold some out; users fine-tune once for all parts."""
        received = Received(shared, extra)
        data, protocol, seed = self.federation.problem.data, self.protocol, self.federation.problem.seed
        # A private run scores nobody whose data it protects: the score would be an exact function of them.
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
        groups = (clients[start : start + self.block] for start in range(0, len(clients), self.block))
        blocks = (Block(together, self._personal(context, together)) for together in groups)
        results = list(self.engine.score(context, blocks))
        return [
            (
                self._gathered([before[part] for before, _ in results], clients, part),
                self._gathered([after[part] for _, after in results], clients, part),
            )
            for part in context.parts
        ]

    def _personal(self, context: EvaluationContext, clients: np.ndarray) -> list[Params]:
        if not context.newcomers:
            return [self.personal_of(client) for client in clients.tolist()]
        shared = context.received.shared
        return [self.federation.first_personal(client, shared) for client in clients.tolist()]

    def _gathered(self, sums: list[dict[str, np.ndarray]], clients: np.ndarray, part: Part) -> UserScores:
        samples = self.federation.problem.data.sizes(part)[clients]
        metrics = sums[0] if sums else ("loss", *self.federation.problem.task.scores)
        joined = {m: np.concatenate([s[m] for s in sums] or [np.empty(0)]) for m in metrics}
        samples = samples * joined.pop(ANSWERED, True)
        values = {m: sums_of_users / np.maximum(samples, 1) for m, sums_of_users in joined.items()}
        if self.federation.problem.task.name == "language":
            values["perplexity"] = np.exp(values["loss"])
        return UserScores(clients, samples, values, self.protocol.interpolated)


def _joined(blocks: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _score_block(federation: Federation, trained: Trained, part: Part) -> dict[str, np.ndarray]:
    """Sums of loss and scores over each client's rows of the part."""
    problem = federation.problem
    counts = problem.data.sizes(part)[trained.clients]
    width = int(counts.max())
    if width == 0:
        return {m: np.zeros(len(counts)) for m in ("loss", *problem.task.scores)}
    local = np.minimum(np.arange(width), np.maximum(counts - 1, 0)[:, None])
    empty = counts == 0
    batch = problem.rows(
        np.where(empty, trained.clients[~empty][0], trained.clients), np.where(empty[:, None], 0, local), part
    )
    batch["_rows"] = torch.from_numpy(np.arange(width) < counts[:, None]).to(problem.device)
    if trained.shapes and problem.data.outputs is not None:
        batch["_outputs"] = torch.as_tensor(problem.data.outputs[trained.clients], device=problem.device)
    with torch.no_grad():
        sums = trained.each(lambda carry, rows: _score_client(federation, carry.shared, carry.personal, rows), batch)
    return {name: values.cpu().numpy() for name, values in sums.items()}


def _score_client(federation: Federation, shared: Params, personal: Params, batch: Batch) -> dict[str, Tensor]:
    task = federation.problem.task
    outputs = federation.algorithm.serving.predict(federation.problem.network, shared, personal, batch, False)
    outputs = hide_padded_outputs(outputs, batch)
    targets = batch.get("y", outputs)
    rows = batch["_rows"].to(torch.float64)
    losses = task.losses(outputs, targets)
    losses = losses if losses.dim() else losses.expand(rows.shape)
    sums = {"loss": (losses.to(torch.float64) * rows).sum()}
    return {**sums, **{name: (score(outputs, targets) * rows).sum() for name, score in task.scores.items()}}
