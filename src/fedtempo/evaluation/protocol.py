"""The evaluation protocol and its scores: existing and new users, before and after fine-tuning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedtempo.data.parts import Part
from fedtempo.errors import is_count, is_number, require
from fedtempo.metrics import LOWER_IS_BETTER
from fedtempo.randomness import generator
from fedtempo.schedules import Rate, Schedule


@dataclass(frozen=True)
class Evaluation:
    """How often users are scored, which users, and how they fine-tune first.

    By default fine-tuning is one epoch of the algorithm's own local steps: its optimizer, its objective, the tensors it
    trains and its rate in the round, without the decay inside a round (FedDecay, section 4). The settings below apply
    to existing and to new users.

    Validation selects the round; test scores are kept for a round only when validation has just selected it.
    """

    every: int | None = None
    """Rounds between evaluations; a tenth of the run by default. The last round is always evaluated."""
    users: int | None = None
    """Evaluate a seeded sample of this many users of each kind; all of them by default."""
    steps: Rate | None = None
    """The number of fine-tuning steps; 0 scores users without fine-tuning."""
    epochs: Rate | None = None
    """The number of fine-tuning epochs, instead of `steps`."""
    lr: Rate | None = None
    """The learning rate of fine-tuning; by default that of the algorithm's local steps in the round."""
    trains: Literal["all", "head", "body"] | None = None
    """What fine-tuning moves; by default the tensors that the algorithm trains. The body is all but the head."""
    decays: bool = False
    """Whether the rate decays inside fine-tuning as it does inside a round."""
    patience: int | None = None
    """Stop early after this many evaluations in a row without a better validation score; by default never."""
    interpolated: bool = False
    """Interpolate the bottom decile instead of taking sorted[n // 10]."""
    last: int = 1
    """How many rounds at the end are all evaluated, for means over the last rounds as papers report them."""

    def __post_init__(self) -> None:
        require(self.every is None or is_count(self.every), "evaluation.every", "an int >= 1", self.every)
        require(self.users is None or is_count(self.users), "evaluation.users", "an int >= 1", self.users)
        patient = self.patience is None or is_count(self.patience)
        require(patient, "evaluation.patience", "an int >= 1", self.patience)
        require(is_count(self.last), "evaluation.last", "an int >= 1", self.last)
        rated = self.lr is None or callable(self.lr) or isinstance(self.lr, Schedule) or is_number(self.lr)
        require(rated, "evaluation.lr", "a number >= 0 or a schedule", self.lr)
        require(
            self.trains in (None, "all", "head", "body"), "evaluation.trains", "'all', 'head' or 'body'", self.trains
        )

    def interval(self, rounds: int) -> int:
        """Rounds from one evaluation to the next, in a run of so many rounds."""
        return self.every or max(1, rounds // 10)

    def due(self, round_number: int, rounds: int, planned: int | None = None) -> bool:
        """Whether the round with this number (from 0) is evaluated. `planned` is what a longer run was to be first."""
        every = self.interval(planned or rounds)
        return (round_number + 1) % every == 0 or round_number >= rounds - self.last

    def sample(self, clients: np.ndarray, seed: int, kind: str) -> np.ndarray:
        """The users to evaluate."""
        if self.users is None or self.users >= len(clients):
            return clients
        return np.sort(generator(seed, "evaluated", kind).choice(clients, self.users, replace=False))


STATISTICS = ("mean", "weighted_mean", "bottom_decile", "worst_tenth", "worst", "std")


@dataclass(frozen=True)
class UserScores:
    """Loss and scores of each user, and statistics over users."""

    clients: np.ndarray
    samples: np.ndarray
    values: dict[str, np.ndarray]
    """Each user's score, by metric; `loss` is one of them. NaN where a metric is undefined for a user, and for one
    without rows."""
    interpolated: bool = False
    lower: frozenset[str] = LOWER_IS_BETTER
    """The metrics that are better when they are low."""

    def summary(self, metric: str) -> dict[str, float]:
        """Mean, sample-weighted mean, bottom decile, worst tenth, worst and population standard deviation over users.

        The bottom decile is one user's score, sorted[n // 10]; the worst tenth is the mean of the n // 10 users below
        it, or of the worst user alone. They, and the worst, are of those who are served worst, whichever way the metric
        goes. `undefined` counts the users for whom the metric says nothing; the statistics are without them.
        """
        scored = self.scored(metric)
        undefined = float(self.undefined(metric))
        values, samples = self.values[metric][scored], self.samples[scored]
        if not len(values):
            return {**dict.fromkeys(STATISTICS, float("nan")), "undefined": undefined}
        with np.errstate(invalid="ignore"):  # a diverged user's infinity has no deviation
            return {
                "mean": float(values.mean()),
                "weighted_mean": float(np.average(values, weights=samples)),
                "bottom_decile": float(bottom_decile(values, metric in self.lower, self.interpolated)),
                "worst_tenth": float(worst_tenth(values, metric in self.lower)),
                "worst": float(values.max() if metric in self.lower else values.min()),
                "std": float(values.std()),
                "undefined": undefined,
            }

    def scored(self, metric: str) -> np.ndarray:
        """Which users the metric is defined for. A NaN loss means that the model diverged, so that user counts."""
        known = ~np.isnan(self.values[metric]) | (metric == "loss")
        return np.asarray((self.samples > 0) & known)

    def among(self, clients: np.ndarray) -> UserScores:
        """The same of these users alone."""
        chosen = np.isin(self.clients, clients)
        values = {name: scores[chosen] for name, scores in self.values.items()}
        return replace(self, clients=self.clients[chosen], samples=self.samples[chosen], values=values)

    def undefined(self, metric: str) -> int:
        """How many users have rows, but none for which the metric is defined."""
        return int(np.count_nonzero(self.samples > 0) - np.count_nonzero(self.scored(metric)))


def bottom_decile(values: np.ndarray, lower_is_better: bool, interpolated: bool = False) -> np.ndarray:
    """The score below which the worst-served tenth of the users are, along the last axis.

    >>> float(bottom_decile(np.arange(20.0), lower_is_better=True))
    17.0
    """
    if interpolated:
        return np.asarray(np.quantile(values, 0.9 if lower_is_better else 0.1, axis=-1))
    tenth = values.shape[-1] // 10
    place = values.shape[-1] - 1 - tenth if lower_is_better else tenth
    return np.asarray(np.partition(values, place, axis=-1)[..., place])


def worst_tenth(values: np.ndarray, lower_is_better: bool) -> np.ndarray:
    """The mean of the worst-served tenth of the users, at least of one, along the last axis.

    >>> float(worst_tenth(np.arange(20.0), lower_is_better=True))
    18.5
    """
    count = max(1, values.shape[-1] // 10)
    ordered = np.sort(values, axis=-1)
    return np.asarray((ordered[..., -count:] if lower_is_better else ordered[..., :count]).mean(axis=-1))


def decile_in_words(users: Iterable[int]) -> str:
    """What the bottom decile of so many users is; of fewer than ten it is the worst one.

    >>> decile_in_words([40, 38]), decile_in_words([8, 8]), decile_in_words([8, 40])
    ('bottom decile', 'worst of 8', 'bottom decile')
    """
    counts = set(users)
    if not counts or max(counts) >= 10:
        return "bottom decile"
    return f"worst of {max(counts)}" if len(counts) == 1 else "worst user"


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

    def groups(self) -> dict[str, UserScores]:
        """The four groups that are there, by name."""
        named = {name: getattr(self, name) for name in ("existing_before", "existing_after", "new_before", "new_after")}
        return {name: scores for name, scores in named.items() if scores is not None}

    def summary(self) -> dict[str, dict[str, dict[str, float]]]:
        """Statistics by group and metric."""
        return {name: {m: s.summary(m) for m in s.values} for name, s in self.groups().items()}

    @property
    def lower_is_better(self) -> bool:
        """Whether the main metric is better when it is low."""
        return self.metric in self.guiding.lower

    def quality(self) -> float:
        """What validation selects by: the mean over the guiding users after fine-tuning; larger is better."""
        mean = self.guiding.summary(self.metric)["mean"]
        return -mean if self.lower_is_better else mean

    def undefined(self) -> str:
        """In words, for how many users the main metric is undefined; empty where it is for none."""
        counts = {name: scores.undefined(self.metric) for name, scores in self.groups().items()}
        found = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
        return f"{self.metric} is undefined for some users, who are left out: {', '.join(found)}" if found else ""
