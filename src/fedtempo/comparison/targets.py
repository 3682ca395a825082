"""What it cost to reach a target, and what whole runs cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fedtempo.comparison.runs import Run
from fedtempo.costs import Costs

COSTS = {"rounds": "rounds", "steps": "steps", "bytes": "bytes", "flops": "FLOPs", "seconds": "seconds"}


@dataclass(frozen=True)
class Reached:
    """How many seeds reached the target, and the mean cost of those where all did; None where some did not."""

    seeds: int
    of: int
    costs: dict[str, float] | None


def whole_costs(runs: Sequence[Run]) -> dict[str, float]:
    """What a run costs from the first to the last round, averaged over seeds."""
    return _mean([_costs(len(run.history), run.costs, run.seconds) for run in runs])


def cost_to_reach(runs: Sequence[Run], target: float) -> Reached:
    """The cost up to the first evaluated round whose score is at least the target (at most, where lower is better).

    The score is the one that guides a run: the mean over existing users after fine-tuning on the validation part, or on
    the part there is. A run is evaluated every few rounds, so the cost is exact to that many.
    """
    found = [cost for run in runs if (cost := _first_reaching(run, target)) is not None]
    return Reached(len(found), len(runs), _mean(found) if len(found) == len(runs) else None)


def _first_reaching(run: Run, target: float) -> dict[str, float] | None:
    seconds = 0.0
    for report in run.history:
        seconds += report.seconds
        if report.scores is None:
            continue
        wanted = -target if report.scores.lower_is_better else target
        if report.scores.quality() >= wanted:
            return _costs(report.round + 1, report.total_costs, seconds)
    return None


def _costs(rounds: int, costs: Costs, seconds: float) -> dict[str, float]:
    return {
        "rounds": float(rounds),
        "steps": float(costs.steps),
        "bytes": float(costs.bytes),
        "flops": float(costs.flops),
        "seconds": seconds,
    }


def _mean(costs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(cost[name] for cost in costs) for name in COSTS}
