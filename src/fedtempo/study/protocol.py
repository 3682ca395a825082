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
from fedtempo.errors import ConfigError, FedTempoError, TrainingError, is_count, require
from fedtempo.study.decisions import decide_all, validation_curve
from fedtempo.study.driver import Observe, perform_all
from fedtempo.study.jobs import Points, judged_of, trial_score, trials_of
from fedtempo.study.live import live_page
from fedtempo.study.outcome import FairComparison, TunedValues
from fedtempo.study.plan import FairPlan
from fedtempo.study.ranges import at_an_end, beyond
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

    The numbers are the same for any number of workers and however often it was interrupted. A run that fails ends no
    other; what is missing then stands in the outcome. Only where nothing can be judged is the first failure raised.
    """
    require(is_count(workers), "workers", "an int >= 1", workers)
    slugs = [slug(tunable.label) for tunable in tunables]
    require(len(set(slugs)) == len(slugs), "contestants", "of names that differ in letters or digits", slugs)
    with _folder(out) as folder, sole_user(folder, LOCK):
        plan.write(folder)
        seen = observe if out is None else live_page(plan, tunables, folder, observe)
        tuned, failed = tune_alike(tunables, plan, folder, workers, seen)
        judged = [
            run
            for one in tunables
            if one.label in tuned
            for run in judged_of(one, tuned[one.label].values, plan, folder)
        ]
        failed = [*failed, *perform_all(judged, workers, _can_be_sent(tunables), seen, "judged runs")]
        runs = [Run.of(run.folder, run.label).completed() for run in judged if not failed or run.done()]
        if not runs:
            raise failed[0]
        found = _judge(plan, tuned, runs, [str(error) for error in failed])
        if out is not None:
            found.write(folder)
    return found


def tune_alike(
    tunables: Sequence[Tunable], plan: FairPlan, folder: Path, workers: int, observe: Observe
) -> tuple[dict[str, TunedValues], list[FedTempoError]]:
    """Every contestant's best values, by as many trials and rounds as all others have; and what failed.

    Whoever's best is at an end of its range goes on beyond it, until it is inside or the plan's extra trials are spent.
    """
    points = {one.label: list(plan.contestants[one.label]["points"]) for one in tunables}
    waiting = list(tunables)
    tuned: dict[str, TunedValues] = {}
    failed: list[FedTempoError] = []
    for extra in range(plan.widen + 1):
        trials = [run for tunable in waiting for run in trials_of(tunable, points[tunable.label], plan, folder)]
        perform_all(trials, workers, _can_be_sent(tunables), observe, "trials" if not extra else "wider trials")
        for tunable in waiting:
            try:
                tuned[tunable.label] = _chosen(tunable, points[tunable.label], plan, folder)
            except TrainingError as error:
                failed.append(error)
        grown = [one for one in waiting if one.label in tuned and _widened(one, tuned[one.label], points, plan)]
        waiting = grown
        if not waiting:
            break
    return tuned, failed


def _widened(tunable: Tunable, best: TunedValues, points: dict[str, list[dict[str, Any]]], plan: FairPlan) -> bool:
    """Add the point beyond the best one, where the best is at an end and the contestant allows the next value."""
    own = points[tunable.label]
    if len(own) >= len(plan.contestants[tunable.label]["points"]) + plan.widen:
        return False
    for dimension in tunable.dimensions:
        value = beyond(dimension, best.values[dimension.name], own)
        following = {**best.values, dimension.name: value}
        if value is not None and following not in own and _allows(tunable, following, plan):
            own.append(following)
            return True
    return False


def _allows(tunable: Tunable, point: Mapping[str, Any], plan: FairPlan) -> bool:
    try:
        tunable.make(point, plan.tuning_seeds[0])
    except ConfigError:  # such as a share above 1: the range ends there
        return False
    return True


def _can_be_sent(tunables: Sequence[Tunable]) -> bool:
    """Whether runs can go to other processes: an experiment file can, a user's own function may not."""
    return all(isinstance(tunable.make, FromFile) for tunable in tunables)


def _judge(
    plan: FairPlan, tuned: Mapping[str, TunedValues], runs: Sequence[Run], missing: Sequence[str] = ()
) -> FairComparison:
    by_label: dict[str, list[Run]] = {}
    for run in runs:
        by_label.setdefault(str(run.label), []).append(run)
    decisions, training = decide_all(by_label, plan)
    reference = plan.reference if plan.reference in by_label else next(iter(by_label))
    target = plan.target if plan.target is not None else _target(by_label[reference], plan)
    comparison = compare_runs(runs, reference, target)
    judged = {label: one for label, one in tuned.items() if label in by_label}
    return FairComparison(plan, judged, training, comparison, decisions, runs, tuple(missing))


def _target(reference: Sequence[Run], plan: FairPlan) -> float:
    """A score that the reference reaches in every seed but for the margin: costs are compared up to there."""
    return plan.in_unit(min(max(validation_curve(run)) for run in reference) - plan.margin)


def _chosen(tunable: Tunable, points: Points, plan: FairPlan, folder: Path) -> TunedValues:
    """The point with the best mean over tuning seeds; of equals, the first. A point that failed once is out."""
    if not tunable.dimensions:
        return TunedValues({}, math.nan, ())
    by_point: list[list[Mapping[str, Any]]] = [[] for _ in points]
    for place, run in enumerate(trials_of(tunable, points, plan, folder)):
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
    notes = tuple(f"the best {name} is at an end of what was tried: a wider range may do better" for name in ends)
    return TunedValues(points[best], plan.in_unit(scores[best]), trials, notes)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder that was asked for, or one for the time being."""
    if out is not None:
        yield out
        return
    with TemporaryDirectory() as place:
        yield Path(place)
