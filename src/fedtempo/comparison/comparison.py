"""Runs side by side: paired over seeds and users, with intervals and costs."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedtempo.comparison.intervals import of_common_users, over_users, paired_by_data
from fedtempo.comparison.protocol import Contestant, contestants_of, notes_on
from fedtempo.comparison.targets import Reached, cost_to_reach, whole_costs
from fedtempo.errors import unknown
from fedtempo.evaluation.over_seeds import Estimate, over_seeds
from fedtempo.evaluation.protocol import STATISTICS as ALL
from fedtempo.evaluation.protocol import UserScores, decile_in_words
from fedtempo.support.csv_rows import CsvRows
from fedtempo.support.display import html_of
from fedtempo.support.json_text import JsonTable, finite
from fedtempo.training.view import Run

GROUPS = ("existing_before", "existing_after", "new_before", "new_after")
STATISTICS = ("mean", "bottom_decile", "std")


@dataclass(frozen=True)
class Difference:
    """A contestant's statistic minus the reference's, on the seeds and users that both have."""

    seeds: Estimate
    users: Estimate
    ahead: float
    """Share of users who score better than under the reference; ties count half."""


@dataclass(frozen=True)
class Line:
    """One contestant: statistics by group, differences to the reference, costs."""

    label: str
    seeds: list[int]
    scores: dict[str, dict[str, Estimate]]
    by_seed: dict[str, dict[str, list[float]]]
    differences: dict[str, dict[str, Difference]]
    costs: dict[str, float]
    reached: Reached | None
    users: dict[str, int] = field(default_factory=dict)
    """How many users of each group a run scores, at most."""


@dataclass(frozen=True)
class Comparison:
    """The whole comparison; `table()` shows it, `records()`, `csv()` and `json()` hand it on."""

    metric: str
    part: str
    reference: str
    target: float | None
    lines: list[Line]
    notes: list[str]
    lower_is_better: bool = False

    def records(self) -> list[JsonTable]:
        """Plain data, one dict per contestant."""
        return [_record(line, self.target) for line in self.lines]

    def decile(self, kind: str) -> str:
        """What the bottom decile is of existing or new users; of fewer than ten it is the worst one."""
        return decile_in_words(line.users[f"{kind}_after"] for line in self.lines if f"{kind}_after" in line.users)

    def as_dict(self) -> JsonTable:
        """Everything as plain data."""
        return {
            "metric": self.metric,
            "lower_is_better": self.lower_is_better,
            "part": self.part,
            "reference": self.reference,
            "target": self.target,
            "notes": self.notes,
            "contestants": self.records(),
        }

    def json(self) -> str:
        """Everything as JSON; a number that is not known is null."""
        return json.dumps(finite(self.as_dict()), indent=1)

    def csv(self) -> str:
        """One line per contestant, one column per number; a number that is not known is an empty cell."""
        rows = [_flat(finite(record)) for record in self.records()]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        text = io.StringIO()
        writer = CsvRows(text, columns)
        writer.header()
        writer.rows(rows)
        return text.getvalue()

    def _repr_html_(self) -> str:
        return html_of(self)


def compare_runs(runs: Sequence[Run], reference: str | None = None, target: float | None = None) -> Comparison:
    """Put runs side by side; all differences are to the reference, by default the first contestant."""
    contestants = contestants_of(runs)
    labels = [contestant.label for contestant in contestants]
    if reference is not None and reference not in labels:
        raise unknown("reference", reference, labels)
    base = next(c for c in contestants if reference is None or c.label == reference)
    scores = runs[0].judged
    lines = [_line(contestant, base, scores.metric, target) for contestant in contestants]
    notes = [*notes_on(runs), *_unpaired(contestants, base), *_undefined(contestants)]
    return Comparison(scores.metric, scores.part, base.label, target, lines, notes, scores.lower_is_better)


def _line(contestant: Contestant, base: Contestant, metric: str, target: float | None) -> Line:
    runs = [contestant.runs[seed] for seed in contestant.seeds]
    by_seed = {
        group: {s: [run.judged.groups()[group].summary(metric)[s] for run in runs] for s in ALL}
        for group in GROUPS
        if all(group in run.judged.groups() for run in runs)
    }
    return Line(
        contestant.label,
        contestant.seeds,
        {group: {s: over_seeds(found[s]) for s in STATISTICS} for group, found in by_seed.items()},
        by_seed,
        {} if contestant is base else _differences(contestant, base, metric),
        whole_costs(runs),
        None if target is None else cost_to_reach(runs, target),
        {
            group: max(
                int(run.judged.groups()[group].scored(metric).sum()) for run in runs if group in run.judged.groups()
            )
            for group in by_seed
        },
    )


def _differences(contestant: Contestant, base: Contestant, metric: str) -> dict[str, dict[str, Difference]]:
    """By group and statistic, on the seeds that both have."""
    common = sorted(set(contestant.runs) & set(base.runs))
    found: dict[str, dict[str, Difference]] = {}
    for group in GROUPS if common else ():
        pairs = [(_users(contestant, seed, group), _users(base, seed, group)) for seed in common]
        known = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
        if len(known) == len(pairs):
            data = [base.runs[seed].identity["data"] for seed in common]
            found[group] = _group_differences(known, data, metric)
    return found


def _users(contestant: Contestant, seed: int, group: str) -> UserScores | None:
    return contestant.runs[seed].judged.groups().get(group)


def _group_differences(
    pairs: Sequence[tuple[UserScores, UserScores]], data: Sequence[str], metric: str
) -> dict[str, Difference]:
    """The differences by statistic; `data` is the digest of each seed's data."""
    populations = paired_by_data(pairs, data, metric)
    gains = np.concatenate([(p.ours - p.theirs).mean(0) for p in populations])
    lower = metric in pairs[0][0].lower
    gains = -gains if lower else gains
    ahead = float(((gains > 0) + 0.5 * (gains == 0)).mean()) if len(gains) else math.nan
    by_seed = [of_common_users(ours, theirs, metric) for ours, theirs in pairs]
    return {
        statistic: Difference(
            over_seeds([ours[statistic] - theirs[statistic] for ours, theirs in by_seed]),
            over_users(populations, statistic, lower, pairs[0][0].interpolated),
            ahead,
        )
        for statistic in STATISTICS
    }


def _unpaired(contestants: Sequence[Contestant], base: Contestant) -> list[str]:
    notes = []
    for contestant in contestants:
        if set(contestant.runs) != set(base.runs):
            common = sorted(set(contestant.runs) & set(base.runs))
            used = f"seeds {common}" if common else "nothing, for no seed is common"
            notes.append(f"{contestant.label} is paired with {base.label} on {used}")
    return notes


def _undefined(contestants: Sequence[Contestant]) -> list[str]:
    """For whom the metric says nothing; those users are in no statistic and in no pair."""
    notes = []
    for contestant in contestants:
        found = {run.judged.undefined() for run in contestant.runs.values()} - {""}
        notes += [f"{contestant.label}: {text}" for text in sorted(found)]
    return notes


def _record(line: Line, target: float | None) -> JsonTable:
    record: JsonTable = {
        "label": line.label,
        "seeds": line.seeds,
        "scores": {
            group: {
                name: {**vars(estimate), "by_seed": line.by_seed[group][name]} for name, estimate in statistics.items()
            }
            for group, statistics in line.scores.items()
        },
        "difference": {
            group: {
                name: {
                    "value": one.seeds.value,
                    "over_seeds": [one.seeds.low, one.seeds.high],
                    "over_users": [one.users.low, one.users.high],
                    "ahead": one.ahead,
                }
                for name, one in statistics.items()
            }
            for group, statistics in line.differences.items()
        },
        "costs": line.costs,
    }
    if line.reached is not None:
        record["to_reach"] = {"target": target, **vars(line.reached)}
    return record


def _flat(value: Any, prefix: str = "") -> JsonTable:
    """Nested tables and lists as one row: `scores/existing_after/mean/value`, `.../over_seeds/low`."""
    if isinstance(value, dict):
        return {k: v for key, entry in value.items() for k, v in _flat(entry, f"{prefix}/{key}".strip("/")).items()}
    if isinstance(value, list) and prefix.endswith(("over_seeds", "over_users")):
        return {f"{prefix}/low": value[0], f"{prefix}/high": value[1]}
    if isinstance(value, list):
        return {prefix: " ".join(str(entry) for entry in value)}
    return {prefix: value}
