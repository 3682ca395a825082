"""The fair comparison: the plan first, then trials on seeds of their own, then judged runs, then answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from fedtempo.comparison.comparison import compare_runs
from fedtempo.comparison.entrants import slug
from fedtempo.errors import TrainingError, is_count, require
from fedtempo.study.decisions import decide_all, validation_curve
from fedtempo.study.jobs import Observe, judged_of, perform_all, trial_score, trials_of
from fedtempo.study.outcome import FairComparison, TunedValues
from fedtempo.study.plan import FairPlan
from fedtempo.study.ranges import at_an_end
from fedtempo.study.tunable import FromFile, Tunable
from fedtempo.support.files import sole_user
from fedtempo.training.view import Run

LOCK = "compare.lock"


def compare_fairly(
    tunables: Sequence[Tunable],
    plan: FairPlan,
    out: Path | None = None,
    *,
    workers: int = 1,
    observe: Observe = lambda done, total, name: None,
) -> FairComparison:
    """Carry out a plan. Whatever is in the folder already is not trained again; another plan's folder is refused.

    The numbers are the same for any number of workers and however often it was interrupted.
    """
    require(is_count(workers), "workers", "an int >= 1", workers)
    slugs = [slug(tunable.label) for tunable in tunables]
    require(len(set(slugs)) == len(slugs), "contestants", "of names that differ in letters or digits", slugs)
    with _folder(out) as folder, sole_user(folder, LOCK):
        plan.write(folder)
        tuned = tune_alike(tunables, plan, folder, workers, observe)
        judged = [run for one in tunables for run in judged_of(one, tuned[one.label].values, plan, folder)]
        perform_all(judged, workers, _can_be_sent(tunables), observe, "judged runs")
        runs = [Run.of(run.folder, run.label).completed() for run in judged]
        found = _judge(plan, tuned, runs)
        if out is not None:
            found.write(folder)
    return found


def tune_alike(
    tunables: Sequence[Tunable], plan: FairPlan, folder: Path, workers: int, observe: Observe
) -> dict[str, TunedValues]:
    """Every contestant's best values, by as many trials and rounds as all others have."""
    trials = [run for tunable in tunables for run in trials_of(tunable, plan, folder)]
    perform_all(trials, workers, _can_be_sent(tunables), observe, "trials")
    return {tunable.label: _chosen(tunable, plan, folder) for tunable in tunables}


def _can_be_sent(tunables: Sequence[Tunable]) -> bool:
    """Whether runs can go to other processes: an experiment file can, a user's own function may not."""
    return all(isinstance(tunable.make, FromFile) for tunable in tunables)


def _judge(plan: FairPlan, tuned: Mapping[str, TunedValues], runs: Sequence[Run]) -> FairComparison:
    by_label: dict[str, list[Run]] = {}
    for run in runs:
        by_label.setdefault(str(run.label), []).append(run)
    decisions, training = decide_all(by_label, plan)
    target = plan.target if plan.target is not None else _target(by_label[plan.reference], plan)
    comparison = compare_runs(runs, plan.reference, target)
    return FairComparison(plan, tuned, training, comparison, decisions, runs)


def _target(reference: Sequence[Run], plan: FairPlan) -> float:
    """A score that the reference reaches in every seed but for the margin: costs are compared up to there."""
    return plan.in_unit(min(max(validation_curve(run)) for run in reference) - plan.margin)


def _chosen(tunable: Tunable, plan: FairPlan, folder: Path) -> TunedValues:
    """The point with the best mean over tuning seeds; of equals, the first. A point that failed once is out."""
    points = plan.contestants[tunable.label]["points"]
    if not tunable.dimensions:
        return TunedValues({}, math.nan, ())
    by_point: list[list[Mapping[str, Any]]] = [[] for _ in points]
    for place, run in enumerate(trials_of(tunable, plan, folder)):
        found = None if run.outcome is None else trial_score(run.outcome)
        if found is None:
            raise TrainingError(f"the score of {run.name} is gone from {run.outcome}. Run the command again.")
        by_point[place // len(plan.tuning_seeds)].append(found)
    scores = [-math.inf if any(t["best"] is None for t in ts) else fmean(t["best"] for t in ts) for ts in by_point]
    best = max(range(len(points)), key=lambda place: (scores[place], -place))
    if scores[best] == -math.inf:
        reason = next(trial["reason"] for trials in by_point for trial in trials if trial["best"] is None)
        raise TrainingError(f"no trial of {tunable.label} could be scored. {reason}")
    trials = [
        {"values": point, "score": plan.in_unit(score), "rounds": [trial["rounds"] for trial in own]}
        for point, score, own in zip(points, scores, by_point, strict=True)
    ]
    ends = [d.name for d in tunable.dimensions if at_an_end(d, points[best][d.name], points)]
    notes = tuple(f"the best {name} is at an end of its range: a wider range may do better" for name in ends)
    return TunedValues(points[best], plan.in_unit(scores[best]), trials, notes)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder that was asked for, or one for the time being."""
    if out is not None:
        yield out
        return
    with TemporaryDirectory() as place:
        yield Path(place)
