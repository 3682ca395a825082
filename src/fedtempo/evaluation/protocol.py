"""Evaluation: existing and new users, before and after fine-tuning, one protocol for every algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtempo.backends import Backend, Engine, Trained, serial
from fedtempo.client.program import Phase, length
from fedtempo.errors import is_count, require
from fedtempo.federation.federation import Federation
from fedtempo.objectives import Received
from fedtempo.params import Params, submodule
from fedtempo.randomness import generator
from fedtempo.schedules import Now, Rate, Schedule, as_schedule
from fedtempo.tasks import Batch, hide_padded_outputs
from fedtempo.transforms import identity

Part = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Evaluation:
    """The protocol: how often, on whom, and how users fine-tune first.

    Fine-tuning is one epoch at the training rate by default (FedDecay, section 4), always without within-round decay
    unless `decays=True`. Validation selects the round; test scores are kept for a round only when validation has
    just selected it.
    """

    every: int | None = None
    """Rounds between evaluations; a tenth of the run by default. The last round is always evaluated."""
    users: int | None = None
    """Evaluate a seeded sample of this many users of each kind; all of them by default."""
    steps: Rate | None = None
    epochs: Rate | None = None
    lr: Rate | None = None
    trains: Literal["all", "head"] = "all"
    decays: bool = False
    interpolated: bool = False
    """Interpolate the bottom decile instead of taking sorted[n // 10]."""

    def __post_init__(self) -> None:
        require(self.every is None or is_count(self.every), "evaluation.every", "an int >= 1", self.every)
        require(self.users is None or is_count(self.users), "evaluation.users", "an int >= 1", self.users)
        require(self.trains in ("all", "head"), "evaluation.trains", "'all' or 'head'", self.trains)

    def due(self, round_number: int, rounds: int) -> bool:
        """Whether the round with this number (from 0) is evaluated."""
        every = self.every or max(1, rounds // 10)
        return (round_number + 1) % every == 0 or round_number + 1 == rounds

    def sample(self, clients: np.ndarray, seed: int, kind: str) -> np.ndarray:
        """The users to evaluate."""
        if self.users is None or self.users >= len(clients):
            return clients
        return np.sort(generator(seed, "evaluated", kind).choice(clients, self.users, replace=False))


@dataclass(frozen=True)
class UserScores:
    """Loss and scores of each user, and statistics over users."""

    clients: np.ndarray
    samples: np.ndarray
    values: dict[str, np.ndarray]
    """Means over each user's samples, by metric; `loss` is one of them."""
    interpolated: bool = False

    def summary(self, metric: str) -> dict[str, float]:
        """Mean, sample-weighted mean, bottom decile, worst and population standard deviation over users."""
        seen = self.samples > 0
        values, samples = self.values[metric][seen], self.samples[seen]
        if not len(values):
            return dict.fromkeys(("mean", "weighted_mean", "bottom_decile", "worst", "std"), float("nan"))
        ordered = np.sort(values) if metric not in LOWER_IS_BETTER else np.sort(values)[::-1]
        decile = float(np.quantile(values, 0.1)) if self.interpolated else float(ordered[len(ordered) // 10])
        return {
            "mean": float(values.mean()),
            "weighted_mean": float(np.average(values, weights=samples)),
            "bottom_decile": decile,
            "worst": float(ordered[0]),
            "std": float(values.std()),
        }


ANSWERED = "answered"
"""Where users are on other machines: among their sums, who has answered. The others count as users without samples."""
LOWER_IS_BETTER = frozenset({"loss", "perplexity"})


@dataclass(frozen=True)
class Scores:
    """One evaluation: `initial` before and `tuned` after fine-tuning, for existing and for new users."""

    part: Part
    existing_initial: UserScores
    existing_tuned: UserScores
    new_initial: UserScores | None = None
    new_tuned: UserScores | None = None
    metric: str = "accuracy"

    def groups(self) -> dict[str, UserScores]:
        """The four groups that are there, by name."""
        named = {
            name: getattr(self, name) for name in ("existing_initial", "existing_tuned", "new_initial", "new_tuned")
        }
        return {name: scores for name, scores in named.items() if scores is not None}

    def summary(self) -> dict[str, dict[str, dict[str, float]]]:
        """Statistics by group and metric."""
        return {name: {m: s.summary(m) for m in s.values} for name, s in self.groups().items()}

    def quality(self) -> float:
        """What validation selects by: the mean over existing users after fine-tuning; larger is better."""
        mean = self.existing_tuned.summary(self.metric)["mean"]
        return -mean if self.metric in LOWER_IS_BETTER else mean


class Occasion(NamedTuple):
    """What all users of one evaluation share."""

    received: Received
    now: Now
    parts: tuple[Part, ...]
    newcomers: bool
    protocol: Evaluation


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
        data, protocol, seed = self.federation.data, self.protocol, self.federation.seed
        existing = protocol.sample(data.clients, seed, "existing")
        pairs = self._users(Occasion(received, now, parts, False, protocol), existing)
        metric = self.federation.task.metric
        if not len(data.held_out):
            return [Scores(part, *pair, metric=metric) for part, pair in zip(parts, pairs, strict=True)]
        new = protocol.sample(data.held_out, seed, "new")
        new_pairs = self._users(Occasion(received, now, parts, True, protocol), new)
        return [Scores(part, *p, *n, metric) for part, p, n in zip(parts, pairs, new_pairs, strict=True)]

    def _users(self, occasion: Occasion, clients: np.ndarray) -> list[tuple[UserScores, UserScores]]:
        """Scores of these users before and after fine-tuning, part by part."""
        blocks = (clients[start : start + self.block] for start in range(0, len(clients), self.block))
        items = ((block, self._personal(occasion, block)) for block in blocks)
        results = list(self.engine.map(score_users, occasion, items))
        return [
            (
                self._gathered([initial[part] for initial, _ in results], clients, part),
                self._gathered([tuned[part] for _, tuned in results], clients, part),
            )
            for part in occasion.parts
        ]

    def _personal(self, occasion: Occasion, clients: np.ndarray) -> list[Params]:
        if not occasion.newcomers:
            return [self.personal_of(client) for client in clients.tolist()]
        shared = occasion.received.shared
        return [self.federation.first_personal(client, shared, newcomer=True) for client in clients.tolist()]

    def _gathered(self, sums: list[dict[str, np.ndarray]], clients: np.ndarray, part: Part) -> UserScores:
        samples = self.federation.data.sizes(part)[clients]
        joined = {m: np.concatenate([s[m] for s in sums]) for m in (sums[0] if sums else {})}
        samples = samples * joined.pop(ANSWERED, True)
        values = {m: sums_of_users / np.maximum(samples, 1) for m, sums_of_users in joined.items()}
        if self.federation.task.name == "language":
            values["perplexity"] = np.exp(values["loss"])
        return UserScores(clients, samples, values, self.protocol.interpolated)


Sums = dict[Part, dict[str, np.ndarray]]


def score_users(
    federation: Federation, backend: Backend, occasion: Occasion, item: tuple[np.ndarray, list[Params]]
) -> tuple[Sums, Sums]:
    """Sums of loss and scores of a block of users by part, before and after fine-tuning."""
    clients, personal = item
    code = backend if federation.task.per_sample else serial
    served = served_phases(federation, occasion.protocol, occasion.now, occasion.newcomers)
    sums: list[Sums] = []
    for phases, as_kept in (((), True), served):
        program = federation.compile(phases, as_kept=as_kept)
        trained = list(code.train(federation, program, occasion.received, occasion.now, clients, personal))
        sums.append(
            {part: _joined([_score_block(federation, one, part) for one in trained]) for part in occasion.parts}
        )
    return sums[0], sums[1]


def _joined(blocks: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def served_phases(
    federation: Federation, protocol: Evaluation, now: Now, newcomers: bool
) -> tuple[tuple[Phase, ...], bool]:
    """The phases a user goes through before being served, and whether they start from the state as it was kept.

    New users are served as the algorithm says; so are existing ones where nothing is remembered (FedRecon).
    """
    algorithm = federation.algorithm
    if (newcomers or algorithm.stateless) and algorithm.newcomer is not None:
        return algorithm.newcomer, False
    return (fine_tuning(federation, protocol, now),), True


def fine_tuning(federation: Federation, protocol: Evaluation, now: Now) -> Phase:
    """A plain supervised phase on the model the user is served with."""
    algorithm = federation.algorithm
    steps, epochs = protocol.steps, protocol.epochs
    if steps is None and epochs is None:
        epochs = 1
    model_phase = algorithm.tuning
    kwargs: dict[str, Any] = {}
    if model_phase is not None:
        kwargs = {"objective": model_phase.objective, "enter": model_phase.enter}
    if protocol.trains == "head":
        kwargs["trains"] = submodule("head")
    return Phase(
        length(steps, epochs, minimum=0),
        _tuning_rate(federation, protocol, now),
        direction=identity,
        on=algorithm.tunes,
        **kwargs,
    )


def _tuning_rate(federation: Federation, protocol: Evaluation, now: Now) -> Schedule:
    """The given rate, or the training rate of this round at its first step."""
    own = federation.algorithm.phases[0].lr
    if protocol.lr is not None:
        return as_schedule(protocol.lr)
    return own if protocol.decays else as_schedule(own.at(now))


def _score_block(federation: Federation, trained: Trained, part: Part) -> dict[str, np.ndarray]:
    """Sums of loss and scores over each client's rows of the part."""
    index = {"train": 0, "validation": 1, "test": 2}[part]
    bounds = federation.data.bounds[trained.clients]
    counts = bounds[:, index + 1] - bounds[:, index]
    width = int(counts.max())
    if width == 0:
        return {m: np.zeros(len(counts)) for m in ("loss", *federation.task.scores)}
    local = np.minimum(np.arange(width), np.maximum(counts - 1, 0)[:, None])
    empty = counts == 0
    batch = federation.rows(
        np.where(empty, trained.clients[~empty][0], trained.clients), np.where(empty[:, None], 0, local), part
    )
    batch["_rows"] = torch.from_numpy(np.arange(width) < counts[:, None]).to(federation.device)
    if trained.shapes and federation.data.outputs is not None:
        batch["_outputs"] = torch.as_tensor(federation.data.outputs[trained.clients], device=federation.device)
    with torch.no_grad():
        sums = trained.each(lambda carry, rows: _score_client(federation, carry.shared, carry.personal, rows), batch)
    return {name: values.cpu().numpy() for name, values in sums.items()}


def _score_client(federation: Federation, shared: Params, personal: Params, batch: Batch) -> dict[str, Tensor]:
    task = federation.task
    outputs = federation.algorithm.predict(federation.network, shared, personal, batch, False)
    outputs = hide_padded_outputs(outputs, batch)
    targets = batch.get("y", outputs)
    rows = batch["_rows"].to(torch.float64)
    losses = task.losses(outputs, targets)
    losses = losses if losses.dim() else losses.expand(rows.shape)
    sums = {"loss": (losses.to(torch.float64) * rows).sum()}
    return {**sums, **{name: (score(outputs, targets) * rows).sum() for name, score in task.scores.items()}}
