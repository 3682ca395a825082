"""The evaluation protocol and its scores: existing and new users, before and after fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedtempo.errors import is_count, require
from fedtempo.randomness import generator
from fedtempo.schedules import Rate

Part = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Evaluation:
    """The protocol: how often, on whom, and how users fine-tune first.

    Fine-tuning is one epoch of the algorithm's own local steps by default: its optimizer, its objective, the tensors it
    trains, its rate (FedDecay, section 4), always without within-round decay unless `decays=True`. What is given here
    holds for existing and for new users.

    Validation selects the round; test scores are kept for a round only when validation has just selected it.
    """

    every: int | None = None
    """Rounds between evaluations; a tenth of the run by default. The last round is always evaluated."""
    users: int | None = None
    """Evaluate a seeded sample of this many users of each kind; all of them by default."""
    steps: Rate | None = None
    epochs: Rate | None = None
    lr: Rate | None = None
    trains: Literal["all", "head"] | None = None
    """What fine-tuning moves; by default the tensors that the algorithm trains."""
    decays: bool = False
    interpolated: bool = False
    """Interpolate the bottom decile instead of taking sorted[n // 10]."""

    def __post_init__(self) -> None:
        require(self.every is None or is_count(self.every), "evaluation.every", "an int >= 1", self.every)
        require(self.users is None or is_count(self.users), "evaluation.users", "an int >= 1", self.users)
        require(self.trains in (None, "all", "head"), "evaluation.trains", "'all' or 'head'", self.trains)

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


LOWER_IS_BETTER = frozenset({"loss", "perplexity"})


@dataclass(frozen=True)
class Scores:
    """One evaluation: `before` and `after` fine-tuning, for existing and for new users."""

    part: Part
    existing_before: UserScores
    existing_after: UserScores
    new_before: UserScores | None = None
    new_after: UserScores | None = None
    metric: str = "accuracy"

    @property
    def guiding(self) -> UserScores:
        """The users whose mean selects a round: existing ones after fine-tuning, or new ones in a private run."""
        none = not len(self.existing_after.clients)
        return self.new_after if none and self.new_after is not None else self.existing_after

    def quality(self) -> float:
        """What validation selects by: the mean over the guiding users after fine-tuning; larger is better."""
        mean = self.guiding.summary(self.metric)["mean"]
        return -mean if self.metric in LOWER_IS_BETTER else mean

    def groups(self) -> dict[str, UserScores]:
        """The four groups that are there, by name."""
        named = {name: getattr(self, name) for name in ("existing_before", "existing_after", "new_before", "new_after")}
        return {name: scores for name, scores in named.items() if scores is not None}

    def summary(self) -> dict[str, dict[str, dict[str, float]]]:
        """Statistics by group and metric."""
        return {name: {m: s.summary(m) for m in s.values} for name, s in self.groups().items()}
