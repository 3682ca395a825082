"""What can be measured of a run: users' scores, costs, what it took to reach a target, learning curves.

Every measure is a function of a `Result`. Those with settings are used through `functools.partial`, whose arguments are
part of the run's identity: `partial(to_target, target=0.8)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean

from fedtempo.evaluation.protocol import Scores
from fedtempo.papers.framework.definitions import Curve, Measured
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport

STATISTICS = ("mean", "weighted_mean", "bottom_decile", "std")
AXES: dict[str, Callable[[RoundReport], float]] = {
    "rounds": lambda report: report.round + 1,
    "steps": lambda report: report.total_costs.steps,
    "bytes": lambda report: report.total_costs.bytes,
    "bytes_up": lambda report: report.total_costs.bytes_up,
    "flops": lambda report: report.total_costs.flops,
    "time": lambda report: report.total_time,
    "energy": lambda report: report.total_energy,
}


def users(result: Result) -> Measured:
    """Test scores of the selected round: `existing_after/mean`, `new_after/bottom_decile`, ... of the main metric."""
    scores = result.scores
    groups = scores.groups() if scores else {}
    return Measured(
        {
            f"{name}/{statistic}": group.summary(scores.metric)[statistic]  # type: ignore[union-attr]
            for name, group in groups.items()
            for statistic in STATISTICS
        }
    )


def costs(result: Result) -> Measured:
    """Steps, bytes and FLOPs of the whole run, and `steps_used`: steps over those of the first round's schedule."""
    total = result.costs
    whole = total.steps + total.steps_saved
    used = total.steps / whole if whole else math.nan
    return Measured({"steps": total.steps, "bytes": total.bytes, "flops": total.flops, "steps_used": used})


def train_loss(result: Result, last: int = 1) -> Measured:
    """`train_loss`, the mean training loss of the last rounds; `min_train_loss`; and the curve `train_loss`."""
    losses = [report.loss for report in result.history]
    curve = Curve(tuple(range(1, len(losses) + 1)), tuple(losses))
    return Measured({"train_loss": fmean(losses[-last:]), "min_train_loss": min(losses)}, {"train_loss": curve})


def learning(result: Result, group: str = "existing_after", last: int = 1, over: str = "rounds") -> Measured:
    """Scores of a group's users, evaluation by evaluation.

    The curve `GROUP` over rounds, steps, bytes or flops; `GROUP/best`, `GROUP/last` (the mean of the last evaluations)
    of the mean over users. Of the validation part where there is one, else of the test part.
    """
    points = _points(result, group)
    values = tuple(value for _, value in points)
    if not values:
        return Measured()
    best = min(values) if _lower_is_better(result) else max(values)
    curve = Curve(tuple(AXES[over](report) for report, _ in points), values)
    return Measured({f"{group}/best": best, f"{group}/last": fmean(values[-last:])}, {group: curve})


def to_target(result: Result, target: float, group: str = "existing_after") -> Measured:
    """What it took until the mean over a group's users first reached the target, such as `steps_to_target`.

    NaN where it never did.
    """
    lower = _lower_is_better(result)
    reached = (report for report, value in _points(result, group) if (value <= target if lower else value >= target))
    first = next(reached, None)
    return Measured({f"{axis}_to_target": math.nan if first is None else at(first) for axis, at in AXES.items()})


def _points(result: Result, group: str) -> list[tuple[RoundReport, float]]:
    """The evaluated rounds and the mean over the group's users."""
    evaluated = ((report, report.scores) for report in result.history)
    return [(report, _mean(scores, group)) for report, scores in evaluated if scores and group in scores.groups()]


def _mean(scores: Scores, group: str) -> float:
    return scores.groups()[group].summary(scores.metric)["mean"]


def _lower_is_better(result: Result) -> bool:
    task = result.experiment.federation.problem.task
    return task.metric in task.lower_is_better
