"""A report's numbers as plain columns for the page: rounded, and thinned where there are very many.

Counts are summed up from the first round, so that leaving rounds out loses none of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypedDict

import numpy as np

from fedtempo.evaluation.over_seeds import student_quantile
from fedtempo.evaluation.protocol import Scores, UserScores
from fedtempo.report.sections import Bars, Forest, Rates, Section
from fedtempo.support.json_text import JsonTable
from fedtempo.training.pictures import DataPicture, RatePlan, evenly
from fedtempo.training.round_report import RoundReport
from fedtempo.training.view import Run

DIGITS = 6
MOST_ROUNDS = 1000
MOST_EVALUATIONS = 250
MOST_USERS = 100_000
"""Users of all runs together; beyond that each run shows users evenly spaced from worst to best."""
COSTS = ("bytes", "steps", "flops")


class PageNumbers(TypedDict):
    """Everything the page draws, by the names that its script reads."""

    title: str
    metric: str
    metrics: list[str]
    lower: list[str]
    """Metrics of which less is better."""
    shares: list[str]
    """Metrics that are shares, drawn between 0 and 1."""
    part: str | None
    student: list[float]
    """Student's factor of half a 95 % interval, for two seeds and more."""
    runs: list[JsonTable]
    pictures: list[JsonTable]
    """The data sets, each once; a run names its own by the place in this list."""
    figures: list[JsonTable | None]
    notes: list[str]


def payload(runs: Sequence[Run], title: str, sections: Sequence[Section] = ()) -> PageNumbers:
    """The numbers of the page."""
    scored = next((run.scores for run in runs if run.scores), None)
    pictures = {run.picture.digest: run.picture for run in runs if run.picture is not None}
    places = {digest: index for index, digest in enumerate(pictures)}
    users = max(1, MOST_USERS // max(1, len(runs)))
    most = max(Counter(run.name for run in runs).values(), default=0)
    return {
        "title": title,
        "metric": scored.metric if scored else "loss",
        "metrics": _metrics(runs),
        "lower": sorted({name for scores in _evaluations(runs) for name in scores.existing_after.lower}),
        "shares": [metric for metric in _metrics(runs) if _is_share(runs, metric)],
        "part": scored.part if scored else None,
        "student": [student_quantile(seeds - 1) for seeds in range(2, most + 1)],
        "runs": [_run(run, users, places) for run in runs],
        "pictures": [_picture(picture) for picture in pictures.values()],
        "figures": [_figure(section) for section in sections],
        "notes": _notes(runs, users),
    }


def _run(run: Run, users: int, pictures: Mapping[str, int]) -> JsonTable:
    return {
        "label": run.name,
        "seed": run.seed,
        "done": len(run.history),
        "total": len(run.history) if run.complete else run.total,
        "seconds": _number(run.seconds),
        "digest": run.digest,
        "rounds": _rounds(run),
        "curve": _curve(run),
        "final": _final(run),
        "users": _users(run, users),
        "reasons": dict(Counter(failure.reason for report in run.history for failure in report.failures)),
        "abandoned": sum(report.abandoned for report in run.history),
        "picture": pictures[run.picture.digest] if run.picture is not None else None,
        "plan": _plan(run.plan) if run.plan is not None else None,
    }


def _rounds(run: Run) -> dict[str, list[Any]]:
    """Loss by round, and everything that adds up as the sum so far."""
    history = run.history
    kept = evenly(range(len(history)), MOST_ROUNDS)
    clipped = [report.measurements.get("clipped_steps") for report in history]
    norms = [
        (report.measurements.get("clipped_norm") or 0.0) * (c or 0.0)
        for report, c in zip(history, clipped, strict=True)
    ]
    columns: dict[str, list[Any]] = {
        "round": [report.number for report in history],
        "loss": [_number(report.loss) for report in history],
        "refused": list(accumulate(len(report.failures) for report in history)),
        "asked": list(accumulate(len(report.failures) + len(report.clients) for report in history)),
        **_costs(history),
    }
    if any(count is not None for count in clipped):
        columns["clipped"] = _numbers(accumulate(count or 0.0 for count in clipped))
        columns["clipped_norm"] = _numbers(accumulate(norms))
    return {name: [values[index] for index in kept] for name, values in columns.items()}


def _costs(history: Sequence[RoundReport]) -> dict[str, list[Any]]:
    seconds = accumulate(report.seconds for report in history)
    costs = {name: [getattr(report.total_costs, name) for report in history] for name in COSTS}
    clock = {}
    if history and history[-1].total_time:
        clock = {"time": _numbers(report.total_time for report in history)}
    if history and history[-1].total_energy:
        clock["energy"] = _numbers(report.total_energy for report in history)
    return {**costs, "seconds": _numbers(seconds), **clock}


def _curve(run: Run) -> JsonTable:
    """Statistics over users by metric and group, one entry per evaluation, with the costs so far."""
    costs = _costs(run.history)
    evaluated = [index for index, report in enumerate(run.history) if report.scores]
    kept = evenly(evaluated, MOST_EVALUATIONS)
    summaries = [report.scores.summary() for report in (run.history[index] for index in kept) if report.scores]
    scores: dict[str, dict[str, dict[str, list[Any]]]] = {}
    for group in summaries[-1] if summaries else ():
        for metric, statistics in summaries[-1][group].items():
            scores.setdefault(metric, {})[group] = {
                name: [_number(summary[group][metric][name]) for summary in summaries] for name in statistics
            }
    return {
        "round": [run.history[index].number for index in kept],
        **{name: [values[index] for index in kept] for name, values in costs.items()},
        "part": run.history[kept[-1]].scores.part if kept else None,  # type: ignore[union-attr]
        "scores": scores,
    }


def _final(run: Run) -> JsonTable | None:
    """The test scores of the selected round, by metric and group."""
    if run.selected is None or run.scores is None:
        return None
    summary = run.scores.summary()
    return {
        "round": run.selected.number,
        "part": run.scores.part,
        "users": {name: int((scores.samples > 0).sum()) for name, scores in run.scores.groups().items()},
        "scores": {
            metric: {group: _rounded(summary[group][metric]) for group in summary}
            for metric in next(iter(summary.values()))
        },
    }


def _users(run: Run, most: int) -> JsonTable | None:
    """Every user of the selected round, from worst to best by the main metric after fine-tuning."""
    scores = run.scores
    if scores is None:
        return None
    kinds = {"existing": (scores.existing_before, scores.existing_after)}
    if scores.new_before is not None and scores.new_after is not None:
        kinds["new"] = (scores.new_before, scores.new_after)
    return {kind: _user_columns(*pair, scores.metric, most) for kind, pair in kinds.items()}


def _user_columns(before: UserScores, after: UserScores, metric: str, most: int) -> JsonTable:
    seen = np.flatnonzero(after.samples > 0)
    scores = after.values[metric][seen]
    order = seen[np.argsort(-scores if metric in after.lower else scores, kind="stable")]
    kept = np.array(evenly(order.tolist(), most), dtype=np.int64)
    return {
        "count": len(seen),
        "client": after.clients[kept].tolist(),
        "samples": after.samples[kept].tolist(),
        "before": {name: _numbers(values[kept].tolist()) for name, values in before.values.items()},
        "after": {name: _numbers(values[kept].tolist()) for name, values in after.values.items()},
    }


def _picture(picture: DataPicture) -> JsonTable:
    return {
        "title": picture.title,
        "clients": picture.clients.tolist(),
        "total": picture.total,
        "new": picture.new.astype(int).tolist(),
        "rows": picture.rows.tolist(),
        "counts": picture.counts.T.tolist(),
        "labels": picture.labels,
        "names": picture.names,
    }


def _plan(plan: RatePlan) -> JsonTable:
    def columns(entries: Sequence[Mapping[str, float]]) -> dict[str, list[float | None]]:
        names = dict.fromkeys(name for entry in entries for name in entry)
        return {name: [_number(entry.get(name)) for entry in entries] for name in names}

    return {
        "samples": plan.samples,
        "rounds": [number + 1 for number in plan.rounds],
        "first": [columns(phase) for phase in plan.first],
        "last": [columns(phase) for phase in plan.last],
        "unknown": [f"{name} follows {' and '.join(words)}" for name, words in plan.unknown.items()],
        "inside": {str(number + 1): [columns(phase) for phase in phases] for number, phases in plan.inside.items()},
    }


def _figure(section: Section) -> JsonTable | None:
    figure = section.figure
    if figure is None:
        return None
    if isinstance(figure, Bars):
        return {"kind": "bars", "unit": figure.unit, "values": [[n, _number(v)] for n, v in figure.values.items()]}
    if isinstance(figure, Forest):
        rows = [[one.name, *_numbers((one.value, one.low, one.high)), one.words] for one in figure.rows]
        return {"kind": "forest", "x": figure.x, "margin": figure.margin, "rows": rows}
    if isinstance(figure, Rates):
        return {"kind": "rates", "label": figure.label, "plan": _plan(figure.plan)}
    series = [[name, [[_number(x), _number(y)] for x, y in points]] for name, points in figure.series.items()]
    return {"kind": "lines", "x": figure.x, "y": figure.y, "series": series}


def _metrics(runs: Sequence[Run]) -> list[str]:
    """Every metric that some run has, the main one first and the loss last."""
    names: dict[str, None] = {}
    for scores in _evaluations(runs):
        names.update(dict.fromkeys([scores.metric, *scores.existing_after.values]))
    return sorted(names, key=lambda name: name == "loss") or ["loss"]


def _evaluations(runs: Sequence[Run]) -> list[Scores]:
    return [report.scores for run in runs for report in run.history if report.scores]


def _is_share(runs: Sequence[Run], metric: str) -> bool:
    """Whether every user's score, in the rounds that count, is a share: an axis may then end at 0 and 1."""
    groups = [group for run in runs if run.scores for group in run.scores.groups().values() if metric in group.values]
    values = [group.values[metric][group.scored(metric)] for group in groups]
    return metric != "loss" and all(bool(((v >= 0) & (v <= 1)).all()) for v in values)


def _notes(runs: Sequence[Run], users: int) -> list[str]:
    """What was left out, in words."""
    notes = [f"Numbers on this page are rounded to {DIGITS} significant digits."]
    if any(len(run.history) > MOST_ROUNDS for run in runs):
        notes.append(f"Of long runs {MOST_ROUNDS} evenly spaced rounds are drawn; counts add up over all of them.")
    if any(sum(report.scores is not None for report in run.history) > MOST_EVALUATIONS for run in runs):
        notes.append(f"Of the evaluations {MOST_EVALUATIONS} evenly spaced ones are drawn, the last among them.")
    groups = [scores for run in runs if run.scores for scores in run.scores.groups().values()]
    if any(int((scores.samples > 0).sum()) > users for scores in groups):
        notes.append(
            f"Of each run's users {users}, evenly spaced from worst to best, are drawn; statistics are over all."
        )
    notes += dict.fromkeys(f"{run.name}: {text}." for run in runs if run.scores and (text := run.scores.undefined()))
    pictures = [run.picture for run in runs if run.picture is not None]
    if any(len(picture.clients) < picture.total for picture in pictures):
        notes.append("The picture of the data shows evenly spaced clients, not all of them.")
    if any(picture.counts.shape[1] < picture.labels for picture in pictures):
        notes.append("In the picture of the data several labels share a row.")
    return notes


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [_number(value) for value in values]


def _rounded(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _number(value) for name, value in values.items()}


def _number(value: float | None) -> float | None:
    """The number rounded, or None if it is not finite: JSON has no NaN and no infinity."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
