"""The plan of a fair comparison: written to the folder before the first run, and never changed afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from fedtempo.comparison.targets import COSTS
from fedtempo.errors import ConfigError, is_count, is_number, require, shown
from fedtempo.evaluation.over_seeds import LEVEL
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.metrics import METRICS
from fedtempo.study.kept_plan import keep_plan
from fedtempo.study.ranges import spread_points
from fedtempo.study.tunable import Tunable, known_label
from fedtempo.support.json_text import JsonTable
from fedtempo.training.experiment import Experiment
from fedtempo.training.prepare import prepare
from fedtempo.tuning.space import Dimension

TUNING_SEEDS = 1_000_000
"""Where the seeds of the tuning start, so far from the judged ones that more of either never meet."""
MARGIN = 0.01
"""One point of accuracy: a smaller difference is called none."""
SHARES = (
    *("accuracy", "balanced_accuracy", "top3", "top5", "top10", "f1_macro", "f1_binary", "auroc", "average_precision"),
    *("recall_at_1", "recall_at_5", "recall_at_10"),
)
"""Metrics between 0 and 1, for which a point means something."""
EVALUATIONS = 20
"""How often a run is evaluated if its experiment does not say."""
SHARED = ("data", "loss", "metrics", "rounds", "evaluation")
"""What must be the same for everybody."""
Test = Literal["t", "sign-flip"]
GROUPS = {"existing": "existing_after", "new": "new_after"}


class Said(TypedDict):
    """A claim in words."""

    text: str
    claim: tuple[str, str, str]
    """Who is better than whom, for whom: the answer to it decides."""
    paper: Mapping[str, float]
    """The values that a paper reports, by contestant."""


@dataclass(frozen=True)
class Budget:
    """What everybody gets: trials and seeds for tuning, rounds, and the judged seeds."""

    trials: int = 8
    tuning_seeds: int | Sequence[int] = 2
    """How many tuning seeds there are, or which."""
    tuning_rounds: int | None = None
    """As many as judged runs have, where nothing else is said."""
    seeds: int | Sequence[int] = 5
    """How many judged seeds there are, or which."""
    patience: int = 5
    """Evaluations without a better validation score after which a run ends."""
    margin: float | None = None
    """The largest difference that counts as none; one point, for metrics that are shares."""
    widen: int = 4
    """How many more trials whoever's best is at an end of its range may use to widen it."""
    test: Test = "t"
    """The paired test over seeds."""

    def __post_init__(self) -> None:
        require(is_count(self.trials), "trials", "an int >= 1", self.trials)
        tuning = self.tuning_seeds
        require(is_count(tuning) or _are_seeds(tuning), "tuning_seeds", "an int >= 1 or a list of ints", tuning)
        require(is_count(self.widen, 0), "widen", "an int >= 0", self.widen)
        require(self.test in get_args(Test), "test", " or ".join(map(repr, get_args(Test))), self.test)
        rounds = self.tuning_rounds
        require(rounds is None or is_count(rounds), "tuning_rounds", "an int >= 1", rounds)
        require(is_count(self.patience), "patience", "an int >= 1", self.patience)
        margin = self.margin
        require(margin is None or (is_number(margin) and margin > 0), "margin", "a number > 0", margin)
        require(is_count(self.seeds) or _are_seeds(self.seeds), "seeds", "an int >= 1 or a list of ints", self.seeds)


def _are_seeds(seeds: Any) -> bool:
    numbers = list(seeds) if isinstance(seeds, Sequence) and not isinstance(seeds, str) else []
    return bool(numbers) and len(set(numbers)) == len(numbers) and all(is_count(seed, 0) for seed in numbers)


@dataclass(frozen=True)
class FairPlan:
    """Everything that decides the result, as plain values."""

    metric: str
    contestants: Mapping[str, Mapping[str, Any]]
    """By label: what the algorithm is, the ranges, and the points that are tried."""
    tuning_seeds: tuple[int, ...]
    tuning_rounds: int
    seeds: tuple[int, ...]
    rounds: int
    every: int
    patience: int
    margin: float
    converged_within: float
    """A run that used all rounds has converged if the last quarter of its validation curve gains less than this."""
    claims: tuple[tuple[str, str, str], ...]
    """Who is asked to be better than whom, for which users."""
    reference: str
    target: float | None
    experiment: Mapping[str, str]
    """What else decided the numbers: data, model, loss, cohort, version, ..."""
    lower_is_better: bool = False
    """Whether the metric is better when it is low."""
    widen: int = 0
    """How many more trials whoever's best is at an end of its range may use to widen it."""
    test: Test = "t"
    """The paired test over seeds; Holm's correction is over all claims."""
    title: str = ""
    said: tuple[Said, ...] = ()
    """The claims in words."""

    def __post_init__(self) -> None:
        both = sorted(set(self.seeds) & set(self.tuning_seeds))
        require(not both, "tuning seeds", "seeds that are not judged", both)

    @property
    def trials(self) -> int:
        """How many runs tune, before any range is widened."""
        return sum(len(one["points"]) for one in self.contestants.values() if one["ranges"]) * len(self.tuning_seeds)

    def in_unit(self, quality: float) -> float:
        """The metric's own value of what runs are selected by, which is larger where it is better."""
        return 0.0 - quality if self.lower_is_better else quality

    def as_dict(self) -> JsonTable:
        """The plan as it stands in the folder."""
        plain: JsonTable = json.loads(json.dumps(asdict(self)))
        return plain

    def write(self, folder: Path) -> None:
        """Put the plan into the folder, or make sure that the one there is the same."""
        keep_plan(folder, self.as_dict())

    def in_words(self) -> list[str]:
        """The plan for people, a line each."""
        tuned = f"{len(self.tuning_seeds)} seeds from {self.tuning_seeds[0]} on" if self.tuning_seeds else "no seeds"
        return [
            *([self.title] if self.title else []),
            f"tuned by validation, {self.tuning_rounds} rounds at most, on {tuned}, which are not judged:",
            *(f"  {label}: {_ranges_in_words(one)}" for label, one in self.contestants.items()),
            *self._widening_in_words(),
            f"judged on seeds {', '.join(map(str, self.seeds))}: {self.rounds} rounds at most, evaluated every "
            f"{self.every}, ended after {self.patience} evaluations without a better validation score",
            f"converged: ended that way, or the last quarter gains less than {self.converged_within:g}",
            f"no difference: the whole interval lies within ±{self.margin:g} of {self.metric}",
            f"a difference: {self._test_in_words()}",
            *self._claims_in_words(),
        ]

    def _claims_in_words(self) -> list[str]:
        if not self.claims:
            return []
        kinds = list(dict.fromkeys(kind for *_, kind in self.claims))
        users = [kind for kind in kinds if kind in GROUPS]
        about = [*([f"{' and '.join(users)} users"] if users else []), *(kind for kind in kinds if kind in COSTS)]
        pairs = dict.fromkeys(f"{better} > {other}" for better, other, _ in self.claims)
        return [f"asked, for {' and '.join(about)}: {'; '.join(pairs)}"]

    def _widening_in_words(self) -> list[str]:
        if not self.widen or not self.tuning_seeds:
            return []
        return [f"  whoever's best is at an end of its range goes on beyond it, by {self.widen} more trials at most"]

    def _test_in_words(self) -> str:
        name = "Student's paired t test" if self.test == "t" else "the exact sign-flip test"
        text = f"both intervals leave out 0, and {name} over seeds has p < {1 - LEVEL:.2g} by Holm's correction"
        needed = seeds_to_be_significant(self.test, len(self.seeds), len(self.claims))
        if needed is None:
            return text
        return f"{text}; with {len(self.seeds)} seeds that cannot happen, with {needed} it can"


def seeds_to_be_significant(test: Test, seeds: int, tests: int) -> int | None:
    """How many seeds a difference needs so that any test can be significant; None where these are enough.

    The sign-flip test gives no p below 2 / 2^n, and Holm multiplies the smallest by the number of tests.

    >>> seeds_to_be_significant("sign-flip", 5, tests=3), seeds_to_be_significant("sign-flip", 8, tests=3)
    (7, None)
    """
    needed = 2
    while test == "sign-flip" and tests * 2.0 ** (1 - needed) >= 1 - LEVEL:
        needed += 1
    return needed if seeds < needed and tests else None


def _ranges_in_words(contestant: Mapping[str, Any]) -> str:
    if not contestant["ranges"]:
        return "nothing is tuned"
    parts = []
    for name, found in contestant["ranges"].items():
        words = " to ".join(f"{end:g}" for end in found["between"]) if "between" in found else str(found["choices"])
        parts.append(f"{name} {words}")
    return f"{len(contestant['points'])} trials of {', '.join(parts)}"


def make_plan(
    tunables: Sequence[Tunable],
    budget: Budget,
    *,
    first_seed: int = 0,
    claims: Sequence[Sequence[str]] | None = None,
    reference: str | None = None,
    target: float | None = None,
    title: str = "",
    said: Sequence[Said] = (),
) -> FairPlan:
    """Check everything that can be checked before training, and put it down."""
    labels = [tunable.label for tunable in tunables]
    require(
        len(labels) > (claims is None) and len(set(labels)) == len(labels),
        "contestants",
        "two or more of different names",
        labels,
    )
    base = known_label(reference or labels[0], labels, "reference")
    asked: Sequence[Sequence[str]] = (
        claims if claims is not None else [(label, base) for label in labels if label != base]
    )
    _check_claims(asked, labels)
    seeds = budget.seeds
    judged = tuple(range(first_seed, first_seed + seeds)) if isinstance(seeds, int) else tuple(seeds)
    given = budget.tuning_seeds
    counted = range(TUNING_SEEDS + first_seed, TUNING_SEEDS + first_seed + given) if isinstance(given, int) else given
    tuning = tuple(counted)
    points = {one.label: spread_points(one.dimensions, budget.trials, first_seed) for one in tunables}
    first = [_prepared(one, points[one.label][0], judged[0]) for one in tunables]
    identities = [experiment.identity(strict=False) for experiment in first]
    _check_shared(labels, identities)
    data, protocol = first[0].federation.problem.data, first[0].evaluation
    _check(first[0].rounds, bool(data.sizes("validation").any()), protocol)
    assert protocol is not None
    every = protocol.every or max(1, first[0].rounds // EVALUATIONS)
    kinds, task = _scored_kinds(first[0]), first[0].federation.problem.task
    metric = task.metric
    margin = budget.margin if budget.margin is not None else _margin(metric)
    return FairPlan(
        metric=metric,
        contestants={
            one.label: _contestant(one, identity, points[one.label])
            for one, identity in zip(tunables, identities, strict=True)
        },
        tuning_seeds=tuning if any(one.dimensions for one in tunables) else (),
        tuning_rounds=budget.tuning_rounds or first[0].rounds,
        seeds=judged,
        rounds=first[0].rounds,
        every=every,
        patience=protocol.patience or budget.patience,
        margin=margin,
        converged_within=margin / 2,
        claims=_by_users(asked, kinds),
        reference=base,
        target=target,
        experiment={k: v for k, v in identities[0].items() if not k.startswith("algorithm") and k != "seed"},
        lower_is_better=metric in task.lower_is_better,
        widen=budget.widen,
        test=budget.test,
        title=title,
        said=tuple(said),
    )


def _by_users(asked: Sequence[Sequence[str]], kinds: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    """Every claim with its users: those that it names, or each kind that is scored."""
    found = []
    for better, other, *named in asked:
        for kind in named or kinds:
            require(kind in kinds or kind in COSTS, "claims", f"about {' or '.join([*kinds, *COSTS])}", kind)
            found.append((better, other, kind))
    return tuple(dict.fromkeys(found))


def _contestant(tunable: Tunable, identity: Mapping[str, str], points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the plan says about one contestant: its algorithm, the ranges of its values, and the points to try."""
    return {
        "algorithm": {name: value for name, value in identity.items() if name.startswith("algorithm")},
        "ranges": {dimension.name: _range_of(dimension) for dimension in tunable.dimensions},
        "points": points,
    }


def _check_claims(claims: Sequence[Sequence[str]], labels: Sequence[str]) -> None:
    """Every claim is about two contestants that there are."""
    for pair in claims:
        better, other = (known_label(label, labels, "a contestant in claims") for label in pair[:2])
        require(better != other, "claims", "about two contestants", pair)


def _scored_kinds(experiment: Experiment) -> list[str]:
    """The kinds of users that are scored: existing ones, new ones, or both."""
    # Of a private run's training clients nothing is published but the noised mean: only new users are scored.
    federation = experiment.federation
    scored = {"existing": not federation.private, "new": bool(len(federation.problem.data.held_out))}
    kinds = [kind for kind in GROUPS if scored[kind]]
    require(bool(kinds), "data", "with new clients where training is private: nobody else is scored", "none")
    return kinds


def _prepared(tunable: Tunable, point: Mapping[str, Any], seed: int) -> Experiment:
    """A contestant's first run, checked; what is wrong names the contestant."""
    try:
        return prepare(**{**tunable.make(point, seed), "workers": 1})
    except ConfigError as error:
        raise ConfigError(f"{tunable.label}: {error}") from error


def _check_shared(labels: Sequence[str], identities: Sequence[Mapping[str, str]]) -> None:
    """Everybody solves the same problem, is scored alike and has the same rounds."""
    for field in SHARED:
        for label, own in zip(labels, identities, strict=True):
            if own[field] != identities[0][field]:
                both = f"{shown(identities[0][field])} for {labels[0]} and {shown(own[field])} for {label}"
                raise ConfigError(f"{field} must be the same for all contestants. Got {both}.")


def _check(rounds: int, has_validation: bool, protocol: Evaluation | None) -> None:
    rule = "given for a comparison with tuning, which looks at validation scores"
    if not has_validation:
        raise ConfigError(f"a validation part of the data must be {rule}. Got none: set data.validation.")
    require(protocol is not None, "evaluation", rule, protocol)
    require(rounds >= 4, "rounds", "an int >= 4, so that convergence can be seen", rounds)


def _range_of(dimension: Dimension) -> JsonTable:
    if dimension.range is None:
        return {"choices": list(dimension.choices)}
    return {"between": [dimension.range.low, dimension.range.high], "log": dimension.range.log}


def _margin(metric: str) -> float:
    known = metric in SHARES and metric in METRICS
    require(known, "margin", f"given for {metric!r} (--margin): the largest difference of it that counts as none", None)
    return MARGIN
